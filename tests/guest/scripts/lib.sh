# What the guest's scripts share. A command that fails ends the script, and so the test.
set -eu

step() { echo "WEIR-STEP $*"; }
fail() { echo "wrong: $*"; exit 1; }
# Runs a command quietly; what it said is shown when it fails.
quiet() { "$@" >/tmp/quiet 2>&1 || { echo "failed: $*"; cat /tmp/quiet; exit 1; }; }
# The file must have a line that matches.
has() { grep -qE "$2" "$1" || { cat "$1"; fail "nothing matches '$2' in what was printed"; }; }

# until SECONDS COMMAND: tries every 100 ms.
until_true() {
    tries=$(($1 * 10)); shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { "$@" || true; fail "not within the time: $*"; }
        sleep 0.1
    done
}

# opened PID PATH: the process has the file open.
opened() { ls -l /proc/$1/fd | grep -q " $2\$"; }

# bdf_of VENDOR:DEVICE, as in 0x1234:0x5765: the first PCI function with these.
bdf_of() {
    for path in /sys/bus/pci/devices/*; do
        [ "$(cat $path/vendor):$(cat $path/device)" = "$1" ] && { basename $path; return; }
    done
    return 1
}
driver_of() { basename "$(readlink /sys/bus/pci/devices/$1/driver)"; }
# The controller's name, such as nvme0, of a function.
ctrl_of() { ls /sys/bus/pci/devices/$1/nvme 2>/dev/null | head -n 1; }
# The block devices of a controller, such as nvme0n1 nvme0n2.
luns_of() { (cd /sys/block && ls -d $1n* 2>/dev/null || true); }
has_luns() { [ "$(luns_of "$(ctrl_of $1)" | wc -w)" -eq $2 ]; }

card=0x1234:0x5765 # host/nvme/src/weir.rs
own=0x1b36:0x0010  # QEMU's -device nvme
is_card() { [ "$(cat /sys/bus/pci/devices/$1/vendor):$(cat /sys/bus/pci/devices/$1/device)" = $card ]; }
