# QEMU's own nvme under the kernel's driver and ours.
. ./lib.sh
. ./stock.sh
. ./ours.sh
. ./ublk.sh

stock $(bdf_of $own) 4
ours $(bdf_of $own)
ublk $(bdf_of $own) 4
