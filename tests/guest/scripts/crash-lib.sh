# What crash.sh and found.sh share: which controller, and what a block holds.
bdf=$(bdf_of $card)
until_true 30 has_luns $bdf 4
ctrl=$(ctrl_of $bdf)
content() { printf '%-4096s' "block $2 of NSID $1"; }
