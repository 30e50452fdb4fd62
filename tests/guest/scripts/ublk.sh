# LUNs as block devices by ublk, over our driver: `ublk BDF LUNS`. ours.sh has loaded vfio-pci.
. ./lib.sh
. ./lun.sh

ublk() {
    bdf=$1 luns=$2
    mkdir -p /run
    step "weir export ublk refuses, and says why"
    [ -e /dev/ublk-control ] || refused "modprobe ublk_drv" weir export ublk --device $bdf
    modprobe ublk_drv
    refused "weir bind $bdf" weir export ublk --device $bdf
    weir bind $bdf
    refused "there is no LUN 9: the controller has 0, 1" weir export ublk --device $bdf --lun 9
    refused "must be 1 to" weir export ublk --device $bdf --queues 60000
    refused "must be 1 to 4096" weir export ublk --device $bdf --depth 0

    step "ublk over our driver on $bdf: $luns block devices, a hardware queue a CPU"
    start_export $bdf
    disks=$(cd /dev && ls ublkb*)
    [ "$(echo $disks | wc -w)" = $luns ] || fail "block devices: $disks"
    for disk in $disks; do
        queue=/sys/block/$disk/queue
        [ "$(ls -d /sys/block/$disk/mq/* | wc -l)" = "$(nproc)" ] || fail "$disk has not a hardware queue a CPU"
        [ "$(cat $queue/logical_block_size) $(cat $queue/physical_block_size) $(cat $queue/write_cache) $(cat $queue/fua)" = "512 4096 write back 0" ] ||
            fail "$disk: not the blocks or the cache that it should have"
    done
    step "ublk over our driver, with fio verify on $luns devices at once, 512 B to 128 KiB"
    ublk_fio verify --ioengine=io_uring --iodepth=16 --rw=randwrite --bsrange=512-128k --size=2m --do_verify=1
    grep -E '^ +(READ|WRITE): ' /tmp/fio.ublk-verify
    # More than a driver queue holds; flushes; FUA, which is a write and a flush.
    ublk_fio deep --ioengine=io_uring --iodepth=256 --rw=randwrite --bs=512 --size=256k --do_verify=1
    ublk_fio flush --ioengine=psync --rw=randrw --bs=4k --size=256k --fsync=4
    ublk_fio fua --ioengine=psync --rw=write --bs=4k --size=128k --sync=dsync --do_verify=1
    awk '$16 == 0 { print FILENAME ": no flush"; bad = 1 } END { exit bad }' /sys/block/ublkb*/stat || fail "flushes"

    step "weir lun beside weir export ublk: list, set and stat while fio runs"
    refused "an export is served there" weir export ublk --device $bdf
    ublk_background
    weir lun list --device control:/run/weir-$bdf.control
    if is_card $bdf; then
        weir lun set --device control:/run/weir-$bdf.control --depth 2
        weir lun watch --device control:/run/weir-$bdf.control --interval 300ms --count 1 --json >/tmp/watch
        has /tmp/watch '"iops":[1-9]'
        weir lun list --device control:/run/weir-$bdf.control --json >/tmp/after
        [ "$(of_lun /tmp/after 1 depth)" = 2 ] || { cat /tmp/after; fail "what was set is not what is listed"; }
    fi

    step "an export that is killed while fio runs: its devices wait, and the next one takes them back"
    kill -KILL $export
    ! wait $export 2>/dev/null || fail "the export was not killed"
    kill -0 $load || { cat /tmp/fio.ublk-killed; fail "fio ended with the export"; }
    refused "has $(nproc) hardware queues" weir export ublk --device $bdf --queues 1 --depth 4
    start_export $bdf
    [ "$(grep -c "taken back" /tmp/export)" = $luns ] || { cat /tmp/export; fail "not all were taken back"; }
    [ "$(cd /dev && ls ublkb*)" = "$disks" ] || fail "block devices: $(ls /dev/ublkb*)"
    wait $load || { cat /tmp/fio.ublk-killed; fail "fio over a killed export"; }
    weir export ublk --device $bdf --remove-dead >/tmp/refused 2>&1 && fail "devices that are served were removed"
    has /tmp/refused "is served by process $export"

    step "ext4 on ublk: make, write, unmount, mount, compare"
    quiet mkfs.ext4 -q -F /dev/ublkb1
    mkdir -p /mnt
    mount -t ext4 /dev/ublkb1 /mnt
    head -c 2000000 /dev/urandom >/tmp/data
    cp /tmp/data /mnt/data
    step "weir export ublk does not end while a device is in use"
    kill -TERM $export
    until_true 30 grep -q "goes on: /dev/ublkb1 is mounted at /mnt" /tmp/export
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ext4 /dev/ublkb1 /mnt
    cmp /tmp/data /mnt/data
    umount /mnt
    quiet e2fsck -f -n /dev/ublkb1
    sleep 100 </dev/ublkb0 & opener=$!
    until_true 30 opened $opener /dev/ublkb0
    kill -INT $export
    until_true 30 grep -q "goes on: /dev/ublkb0 is open in process $opener" /tmp/export
    kill $opener; wait $opener 2>/dev/null || true
    for disk in $disks; do sum /dev/$disk; done >/tmp/by-ublk

    step "weir export ublk ends in order"
    kill -TERM $export
    status=0; wait $export || status=$?
    [ $status = 0 ] || { cat /tmp/export; fail "exit status $status"; }
    [ -z "$(cd /dev && ls -d ublk[bc]* 2>/dev/null)" ] || fail "left: $(ls -d /dev/ublk*)"

    step "weir export ublk --remove-dead removes what an export that was killed has left"
    start_export $bdf --lun 1
    kill -KILL $export
    wait $export 2>/dev/null || true
    [ -e /dev/ublkb0 ] || fail "the device went with its server"
    weir export ublk --device $bdf --remove-dead | tee /tmp/removed
    has /tmp/removed "/dev/ublkb0 is removed"
    until_true 30 [ ! -e /dev/ublkc0 ]

    step "weir export ublk is killed at any moment of its start, and starts"
    for moment in 0.03 0.08 0.15 0.25 0.4 0.6; do
        weir export ublk --device $bdf >/tmp/export 2>&1 & export=$!
        sleep $moment
        kill -KILL $export 2>/dev/null || { cat /tmp/export; fail "it ended by itself"; }
        wait $export 2>/dev/null || true
    done
    start_export $bdf
    [ "$(cd /dev && ls ublkb* | wc -l)" = $luns ] || fail "block devices: $(ls /dev/ublkb*)"
    kill -TERM $export
    wait $export || { cat /tmp/export; fail "export"; }
    [ -z "$(cd /dev && ls -d ublk[bc]* 2>/dev/null)" ] || fail "left: $(ls -d /dev/ublk*)"

    step "weir export ublk: one LUN of several"
    start_export $bdf --lun 1 --queues 1 --depth 4
    [ "$(cd /dev && ls ublkb*)" = ublkb0 ] || fail "block devices: $(ls /dev/ublkb*)"
    [ "$(sum /dev/ublkb0)" = "$(sed -n 2p /tmp/by-ublk)" ] || fail "LUN 1 has other data"
    if ! is_card $bdf; then
        lose $bdf
    else
        kill -INT $export
        wait $export || { cat /tmp/export; fail "export"; }
    fi

    step "the kernel's nvme finds on $bdf what was written through ublk"
    weir unbind $bdf
    until_true 30 has_luns $bdf $luns
    for nsid in $(seq $luns); do
        sum /dev/$(grep -lx $nsid /sys/block/"$(ctrl_of $bdf)"n*/nsid | cut -d / -f 4)
    done >/tmp/by-nvme
    cmp /tmp/by-ublk /tmp/by-nvme
}
start_export() {
    weir export ublk --device "$@" >/tmp/export 2>&1 & export=$!
    until_true 60 started_or_ended
    has /tmp/export "^its LUNs' depths"
    sed -n 1p /tmp/export
}
started_or_ended() { grep -q "^its LUNs" /tmp/export || ! kill -0 $export; }
ublk_fio() {
    name=$1; shift
    jobs=
    for disk in $disks; do jobs="$jobs --name=$disk --filename=/dev/$disk"; done
    fio --direct=1 --verify=crc32c --verify_fatal=1 "$@" $jobs >/tmp/fio.ublk-$name 2>&1 || { cat /tmp/fio.ublk-$name; fail "fio $name"; }
}
# fio on all the devices, verified at its end; returns when it is under way.
ublk_background() {
    jobs=
    for disk in $disks; do jobs="$jobs --name=$disk --filename=/dev/$disk"; done
    begun=$(ublk_ios)
    fio --direct=1 --ioengine=io_uring --iodepth=16 --rw=randwrite --bs=4k --size=4m --loops=2 --verify=crc32c --verify_fatal=1 \
        $jobs >/tmp/fio.ublk-killed 2>&1 & load=$!
    until_true 60 ublk_more $((begun + 100))
}
ublk_ios() { cat /sys/block/ublkb*/stat | awk '{ n += $1 + $5 } END { print n + 0 }'; }
ublk_more() { [ "$(ublk_ios)" -ge $1 ]; }
sum() { dd if=$1 bs=64k count=24 iflag=direct 2>/dev/null | sha256sum; }

# The function no longer answers: its memory space is disabled behind the driver's back.
lose() {
    step "a controller that is lost fails the I/O of its block devices, and the export ends"
    config=/sys/bus/pci/devices/$1/config
    dd if=$config of=/tmp/command bs=1 skip=4 count=2 2>/dev/null
    printf '\000\000' | dd of=$config bs=1 seek=4 count=2 conv=notrunc 2>/dev/null
    ! dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/lost || fail "a read of a lost controller was good"
    has /tmp/lost 'Input/output error'
    status=0; wait $export || status=$?
    has /tmp/export "is lost: "; cat /tmp/export
    [ $status = 1 ] || fail "exit status $status"
    [ ! -e /dev/ublkb0 ] || fail "the block device is still there"
    dd if=/tmp/command of=$config bs=1 seek=4 count=2 conv=notrunc 2>/dev/null
}
