# The test of live controllers: the card under the kernel's driver and ours, QEMU's own nvme under ours.
. ./lib.sh
. ./stock.sh
. ./ours.sh
. ./ublk.sh

stock $(bdf_of $card) 4
ours $(bdf_of $card)
ublk $(bdf_of $card) 4
ours $(bdf_of $own)
