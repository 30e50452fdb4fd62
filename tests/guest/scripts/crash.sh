# Writes until it is killed: a line WEIR-ACK NSID BLOCK for every write that the device acknowledged, block after
# block on every LUN, beside a load of fio's at the end of the LUNs.
. ./lib.sh
. ./crash-lib.sh

step "writes on every LUN, each one told when it was acknowledged"
for lun in $(luns_of $ctrl); do
    size=$(($(cat /sys/block/$lun/size) / 8)) # in 4 KiB
    fio --direct=1 --ioengine=io_uring --iodepth=8 --rw=randwrite --bsrange=512-64k --offset=$((size / 2 * 4096)) \
        --time_based --runtime=1000 --name=$lun --filename=/dev/$lun >/tmp/fio.$lun 2>&1 &
    {
        nsid=$(cat /sys/block/$lun/nsid)
        i=0
        while [ $i -lt $((size / 2)) ]; do
            content $nsid $i | dd of=/dev/$lun bs=4096 count=1 seek=$i iflag=fullblock oflag=direct conv=notrunc 2>/tmp/dd.$lun ||
                { cat /tmp/dd.$lun; fail "write of block $i"; }
            echo "WEIR-ACK $nsid $i"
            i=$((i + 1))
        done
    } &
done
wait
fail "the LUNs were full before the guest was killed"
