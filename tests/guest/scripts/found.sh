# After crash.sh was killed: all that was acknowledged must be there. /root/acked: LUN and number of blocks, a line each.
. ./lib.sh
. ./crash-lib.sh

step "what was acknowledged before the death is there"
while read -r nsid blocks; do
    lun=${ctrl}n$nsid
    i=0
    while [ $i -lt $blocks ]; do content $lun $i; i=$((i + 1)); done >/tmp/want
    dd if=/dev/$lun of=/tmp/found bs=4096 count=$blocks iflag=direct 2>/dev/null
    cmp /tmp/want /tmp/found || fail "LUN $lun lost acknowledged data"
    echo "$lun: $blocks blocks, all there"
done </root/acked
