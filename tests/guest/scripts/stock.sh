# The kernel's own nvme driver, nvme-cli, fio and ext4 on a controller: `stock BDF LUNS`.
. ./lib.sh
. ./lun.sh

# fio that ends with its own status 0, its output shown otherwise.
run_fio() { name=$1; shift; fio "$@" >/tmp/fio.$name 2>&1 || { cat /tmp/fio.$name; fail "fio $name"; }; }
# A fio job a LUN: the options given, on every LUN at once.
all_luns() {
    for lun in $(luns_of $ctrl); do
        echo --name=$lun --filename=/dev/$lun "$@"
    done
}

stock() {
    bdf=$1 luns=$2
    until_true 30 has_luns $bdf $luns
    ctrl=$(ctrl_of $bdf)
    dev=/dev/$ctrl
    first=/dev/$(luns_of $ctrl | head -n 1)
    step "nvme binds $bdf as $ctrl, $luns LUNs"
    [ "$(driver_of $bdf)" = nvme ] || fail "driver is $(driver_of $bdf)"
    queues=$(ls -d /sys/block/$(basename $first)/mq/* | wc -l)
    [ $queues -ge 2 ] || fail "$queues I/O queues"
    grep -c "$ctrl"q /proc/interrupts >/tmp/vectors
    echo "$queues I/O queues, $(cat /tmp/vectors) interrupt vectors, IOMMU group $(basename $(readlink /sys/bus/pci/devices/$bdf/iommu_group))"

    step "nvme-cli: list, id-ctrl, id-ns, smart-log, error-log"
    nvme list >/tmp/list
    for lun in $(luns_of $ctrl); do has /tmp/list "/dev/$lun "; done
    nvme id-ctrl $dev >/tmp/id; has /tmp/id "^nn +: "; grep -E '^(mn|fr|mdts|oncs|vwc) ' /tmp/id
    for lun in $(luns_of $ctrl); do nvme id-ns /dev/$lun >/tmp/ns; has /tmp/ns '^nsze +: 0x[0-9a-f]*[1-9a-f]'; done
    nvme smart-log $dev >/tmp/smart; has /tmp/smart '^critical_warning'
    nvme error-log $dev -e 1 >/tmp/errors; has /tmp/errors 'Error Log Entries'
    step "nvme-cli: get-feature"
    nvme get-feature $dev -f 7 >/tmp/feature; cat /tmp/feature; has /tmp/feature '0x0*7'

    step "fio: crc32c verify on $luns LUNs at once, 512 B to 128 KiB, buffers at offsets 4, 512 and 1536 in a page"
    for offset in 4 512 1536; do
        run_fio verify --direct=1 --ioengine=io_uring --iodepth=16 --rw=randwrite --bsrange=512-128k --size=2m \
            --iomem_align=$offset --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=$offset $(all_luns)
    done
    grep -E '^ +(READ|WRITE): ' /tmp/fio.verify
    run_fio sync --direct=1 --ioengine=psync --rw=randrw --bs=4k --size=1m --verify=crc32c --verify_fatal=1 \
        --thread --numjobs=1 $(all_luns)

    if is_card $bdf; then
        vendor
    fi

    step "ext4: make, write, unmount, mount, compare"
    quiet mkfs.ext4 -q -F $first
    mkdir -p /mnt
    mount -t ext4 $first /mnt
    head -c 3000000 /dev/urandom >/tmp/data
    cp /tmp/data /mnt/data
    refused "$first is mounted at /mnt" weir bind $bdf
    mkdir /mnt/many
    for i in $(seq 20); do echo "file $i" >/mnt/many/$i; done
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ext4 $first /mnt
    cmp /tmp/data /mnt/data
    [ "$(cat /mnt/many/* | sort | uniq | wc -l)" = 20 ] || fail "small files"
    umount /mnt
    quiet e2fsck -f -n $first

    step "controller reset (nvme reset), idle and under load"
    nvme reset $dev
    background reset
    nvme reset $dev
    sleep 0.5
    nvme reset $dev
    in_the_middle reset
    finish reset

    step "unbind and bind under load"
    background unbind
    echo $bdf >/sys/bus/pci/drivers/nvme/unbind
    wait $load || true # its I/Os failed, as they must: the device is gone
    echo $bdf >/sys/bus/pci/drivers/nvme/bind
    until_true 30 has_luns $bdf $luns
    ctrl=$(ctrl_of $bdf); dev=/dev/$ctrl
    run_fio rebound --direct=1 --ioengine=io_uring --iodepth=8 --rw=randwrite --bs=4k --size=1m \
        --verify=crc32c --verify_fatal=1 $(all_luns)
}

# Writes with verify on every LUN, in the background, and waits until it has begun. $load is its pid.
background() {
    begun=$(sum_ios)
    fio --direct=1 --ioengine=io_uring --iodepth=16 --rw=randwrite --bs=4k --size=4m --loops=2 --verify=crc32c \
        --verify_fatal=1 $(all_luns) >/tmp/fio.$1 2>&1 &
    load=$!
    until_true 60 more_ios $((begun + 100))
}
sum_ios() { for lun in $(luns_of $ctrl); do cat /sys/block/$lun/stat; done | awk '{ n += $1 + $5 } END { print n + 0 }'; }
more_ios() { [ "$(sum_ios)" -ge $1 ]; }
in_the_middle() { kill -0 $load 2>/dev/null || { cat /tmp/fio.$1; fail "fio $1 ended too early to prove anything"; }; }
finish() { wait $load || { cat /tmp/fio.$1; fail "fio $1"; }; }

# What only the card has: budgets, tag set and the LUN log, by stock nvme-cli (docs/nvme-cli.md).
feature() { nvme get-feature $dev "$@" >/tmp/feature || { cat /tmp/feature; fail "get-feature $*"; }; sed -n 's/.*[Cc]urrent value: *\(0x\)\?\([0-9a-f]*\).*/0x\2/p' /tmp/feature; }
vendor() {
    step "vendor features C0h (budget) and C1h (tag set): set, read back, put back"
    budget=$(feature -f 0xc0 -n 1) tags=$(feature -f 0xc1)
    echo "LUN 0 budget $budget, tag set $tags"
    nvme set-feature $dev -f 0xc0 -n 1 -V 0x00030005 >/dev/null
    [ $(($(feature -f 0xc0 -n 1))) = $((0x00030005)) ] || { cat /tmp/feature; fail "budget did not read back"; }
    [ $(($(feature -f 0xc0 -n 2))) = $((budget)) ] || fail "LUN 1's budget changed with LUN 0's"
    nvme set-feature $dev -f 0xc1 -V 0x00020010 >/dev/null
    [ $(($(feature -f 0xc1))) = $((0x00020010)) ] || { cat /tmp/feature; fail "tag set did not read back"; }
    ! nvme set-feature $dev -f 0xc0 -n 1 -V 0 >/tmp/refused 2>&1 || fail "a depth of 0 was taken"
    nvme set-feature $dev -f 0xc0 -n 1 -V $budget >/dev/null
    nvme set-feature $dev -f 0xc1 -V $tags >/dev/null

    step "vendor log C0h: counts what a LUN completes"
    before=$(completed 1)
    dd if=$first of=/dev/null bs=4k count=10 iflag=direct 2>/dev/null
    after=$(completed 1)
    [ $((after - before)) = 10 ] || fail "10 reads changed 'completed' from $before to $after"
    echo "completed: $before, after 10 reads $after"

    step "depth changed by set-feature while fio runs"
    background depth
    for depth in 1 2 64 3 16; do
        nvme set-feature $dev -f 0xc0 -n 0xffffffff -V $((1 << 16 | depth)) >/dev/null
        sleep 0.2
    done
    in_the_middle depth
    nvme set-feature $dev -f 0xc0 -n 0xffffffff -V $budget >/dev/null
    finish depth
    lun_beside $bdf
}
# Word 4 of the LUN log (docs/registers.md).
completed() { nvme get-log $dev -i 0xc0 -n $1 -l 80 -b | od -A n -j 32 -N 8 -t u8 | tr -d ' '; }
