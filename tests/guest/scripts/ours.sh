# Our driver through vfio-pci behind the IOMMU: `ours BDF`. The programs are host/driver/examples.
. ./lib.sh
. ./lun.sh

ours() {
    bdf=$1
    step "weir bind takes $bdf from $(driver_of $bdf)"
    modprobe vfio_iommu_type1
    [ -e /sys/bus/pci/drivers/vfio-pci ] || refused "modprobe vfio-pci" weir bind $bdf
    modprobe vfio-pci
    sleep 100 <$(ls /dev/$(ctrl_of $bdf)n1) & opener=$!
    until_true 30 opened $opener /dev/$(ctrl_of $bdf)n1
    refused "is open in process $opener" weir bind $bdf
    kill $opener; wait $opener 2>/dev/null || true
    weir bind $bdf
    weir bind $bdf >/tmp/again; has /tmp/again "already bound"
    step "weir lun on $bdf, through our driver"
    weir lun list --device $bdf
    if is_card $bdf; then
        weir lun stat --device $bdf
        weir lun set --device $bdf --depth 3=7
    else
        refused "only a Weir card" weir lun stat --device $bdf
    fi
    step "our driver on $bdf: regs, identify"
    refused "must be 1 to the depth" perf $bdf --batch 99
    refused "luns 0,x: x is not a value" counted $bdf --luns 0,x
    refused "no such option" regs $bdf --rest
    regs $bdf
    regs $bdf --reset >/tmp/regs; has /tmp/regs 'RDY false'
    identify $bdf
    step "our driver on $bdf: read and write verify on all LUNs, threads, polling and interrupts, reset"
    io $bdf --ios 8
    verify $bdf --threads 2 --ios 128
    # Long enough to be met: the card is a simulation, QEMU's nvme is not.
    verify $bdf --threads 1 --ios $(is_card $bdf && echo 200 || echo 2000) >/tmp/busy & busy=$!
    until_true 30 opened_group $bdf
    refused "is open in process" weir lun list --device $bdf
    refused "is open in process" weir unbind $bdf
    wait $busy
    step "our driver on $bdf: perf"
    perf $bdf --depth 8 --batch 4 --ios 500
    step "weir unbind gives $bdf back to the kernel's nvme"
    weir unbind $bdf
    [ "$(driver_of $bdf)" = nvme ] || fail "driver is $(driver_of $bdf)"
    until_true 30 has_luns $bdf 4
    dd if=/dev/$(luns_of "$(ctrl_of $bdf)" | head -n 1) of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null
}
opened_group() { ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q "/dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$1/iommu_group))"; }
