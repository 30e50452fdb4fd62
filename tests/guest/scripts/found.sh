# After crash.sh was killed: all that was acknowledged must be there. /root/acked: NSID and number of blocks, a line each.
. ./lib.sh
. ./crash-lib.sh

step "what was acknowledged before the death is there"
while read -r nsid blocks; do
    # The kernel numbers its block devices as it finds them, which is not by NSID and not the same every time.
    lun=$(grep -lx $nsid /sys/block/${ctrl}n*/nsid | cut -d / -f 4)
    i=0
    while [ $i -lt $blocks ]; do content $nsid $i; i=$((i + 1)); done >/tmp/want
    dd if=/dev/$lun of=/tmp/found bs=4096 count=$blocks iflag=direct 2>/dev/null
    cmp /tmp/want /tmp/found || fail "NSID $nsid lost acknowledged data"
    echo "NSID $nsid, $lun: $blocks blocks, all there"
done </root/acked
