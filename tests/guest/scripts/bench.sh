# The benchmark's guest: rows.sh, made by bench/rows.rs, has a line a row. Ends by giving the kernel's symbols out.
. ./lib.sh

# Begins a row: what follows is counted as its. The name is for the log only.
row() { step "row $1"; mark; }
quietly() { "$@" >/tmp/row 2>&1 || { cat /tmp/row; fail "$*"; }; }

# The options of every fio row: nothing but the I/O.
run_fio() { quietly fio --name=row --direct=1 --rw=randread --bs=4k --norandommap=1 --gtod_reduce=1 --thread "$@"; }

# Our programs, on the function $1 taken by vfio-pci until `give_back`.
take() {
    modprobe -a vfio_iommu_type1 vfio-pci
    echo $1 >/sys/bus/pci/devices/$1/driver/unbind
    echo vfio-pci >/sys/bus/pci/devices/$1/driver_override
    echo $1 >/sys/bus/pci/drivers_probe
}
give_back() {
    echo $1 >/sys/bus/pci/devices/$1/driver/unbind
    echo nvme >/sys/bus/pci/devices/$1/driver_override
    echo $1 >/sys/bus/pci/drivers_probe
}
# LUN 0 of the function $1, taken, as /dev/ublkb0 until `no_ublk`.
ublk() {
    modprobe ublk_drv
    weir export ublk --device $1 --lun 0 >/tmp/export 2>&1 & export=$!
    until_true 30 grep -q ^SIGINT /tmp/export
    echo none >/sys/block/ublkb0/queue/scheduler
}
no_ublk() { kill -TERM $export; wait $export || { cat /tmp/export; fail "weir export ublk"; }; }
first_lun() { until_true 30 [ -e /sys/bus/pci/devices/$1/nvme ]; until_true 30 [ -b /dev/"$(ctrl_of $1)"n1 ]; echo /dev/"$(ctrl_of $1)"n1; }

# How long a command of scsi_debug or null_blk takes, by a timer. With two vCPUs time is the host's, and the emulator
# needs some 100 us for what a CPU does in 3.
delay_ns=1000000

# A host of scsi_debug: `scsi LUNS DEPTH`; sets $disks to fio's list of files.
scsi() {
    modprobe sd_mod
    # One tag set for both hardware queues, as a host bus adapter has.
    modprobe scsi_debug max_luns=$1 submit_queues=2 max_queue=128 host_max_queue=128 ndelay=$delay_ns dev_size_mb=8 lun_format=0
    until_true 30 disks_are $1
    disks=
    for disk in /sys/block/sd*; do
        echo $2 >$disk/device/queue_depth
        echo none >$disk/queue/scheduler
        disks=$disks:/dev/${disk##*/}
    done
    disks=${disks#:}
}
disks_are() { [ "$(ls -d /sys/block/sd* | wc -l)" = $1 ]; }
no_scsi() { until_true 30 rmmod scsi_debug; }

# Devices of null_blk with one tag set: `null DEVICES DEPTH`.
null() {
    modprobe null_blk nr_devices=$1 shared_tags=1 submit_queues=2 hw_queue_depth=$2 irqmode=2 completion_nsec=$delay_ns queue_mode=2 gb=1
    disks=$(ls -d /dev/nullb* | tr '\n' ':'); disks=${disks%:}
    for disk in /sys/block/nullb*; do echo none >$disk/queue/scheduler; done
}
no_null() { until_true 30 rmmod null_blk; }

card_bdf=$(bdf_of $card || true)
own_bdf=$(bdf_of $own || true)
. ./rows.sh
mark # ends the last row
step "symbols"
drain=$(grep -l '^own' /sys/class/nvme/nvme*/serial | head -n 1 | cut -d / -f 5)
grep -i ' t ' /proc/kallsyms >/tmp/symbols
dd if=/tmp/symbols of=/dev/${drain}n1 bs=1M oflag=direct conv=sync 2>/dev/null
