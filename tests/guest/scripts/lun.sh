# `weir bind` and `weir lun` in the guest.
. ./lib.sh

# A refusal: exit status 2, and a reason that matches.
refused() { # REASON COMMAND...
    reason=$1; shift
    status=0
    "$@" >/tmp/refused 2>&1 || status=$?
    [ $status = 2 ] || { cat /tmp/refused; fail "exit status $status: $*"; }
    has /tmp/refused "$reason"
}
# The number of a key of one LUN in JSON that `weir lun` printed.
of_lun() { # FILE LUN KEY
    awk -F '[:,]' -v lun=$2 -v key="\"$3\"" '$1 ~ /"lun"/ { now = $2 + 0 } now == lun && index($1, key) { print $2 + 0; exit }' $1
}

# Beside the kernel's driver, on the card: `lun_beside BDF`; $ctrl and all_luns as in stock.sh.
lun_beside() {
    step "weir lun beside the kernel's nvme: list, stat, set and watch while fio runs"
    weir lun list --device $1
    weir lun stat --device $1
    weir lun list --device $1 --json >/tmp/before
    background lun
    weir lun set --device $1 --depth 16 --depth 1=2 --weight 1=5 --tags 24 --fairness weighted
    weir lun watch --device $dev --interval 300ms --count 2
    weir lun watch --device $1 --interval 300ms --count 1 --json >/tmp/watch
    in_the_middle lun
    weir lun list --device $1 --json >/tmp/after
    [ "$(of_lun /tmp/after 1 depth) $(of_lun /tmp/after 1 weight) $(of_lun /tmp/after 2 depth)" = "2 5 16" ] \
        || { cat /tmp/after; fail "what was set is not what is listed"; }
    has /tmp/after '"tag_depth": 24'; has /tmp/after '"fairness": "weighted"'
    has /tmp/watch '"iops":[1-9]'
    [ $(($(nvme get-feature $dev -f 0xc0 -n 2 | sed -n 's/.*[Cc]urrent value: *\(0x\)\?\([0-9a-f]*\).*/0x\2/p'))) = $((0x00050002)) ] \
        || fail "nvme-cli reads another budget than weir set"
    refused "must be 1 to" weir lun set --device $1 --depth 0
    refused "there is no LUN 9" weir lun set --device $1 --depth 9=1
    depth=$(of_lun /tmp/before 0 depth)
    weir lun set --device $1 --depth $depth --weight 1 --fairness none --tags $(sed -n 's/.*"tag_depth": \([0-9]*\).*/\1/p' /tmp/before) >/dev/null
    finish lun
}
