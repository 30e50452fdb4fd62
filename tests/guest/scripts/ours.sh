# Our driver through vfio-pci behind the IOMMU: `ours BDF`. The programs are host/driver/examples.
. ./lib.sh

ours() {
    bdf=$1
    step "vfio-pci takes $bdf from $(driver_of $bdf)"
    modprobe -a vfio_iommu_type1 vfio-pci
    bind_to $bdf vfio-pci
    step "our driver on $bdf: regs, identify"
    regs $bdf
    identify $bdf
    step "our driver on $bdf: read and write verify on all LUNs, threads, polling and interrupts, reset"
    io $bdf --threads 2 --ios 128
    step "our driver on $bdf: perf"
    perf $bdf --depth 8 --batch 4 --ios 500
    step "$bdf back to the kernel's nvme"
    bind_to $bdf nvme
    until_true 30 has_luns $bdf 4
    dd if=/dev/$(luns_of "$(ctrl_of $bdf)" | head -n 1) of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null
}
