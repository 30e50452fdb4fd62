//! The large bitmap: words in RAM, a flop a word that says whether it means anything, and snapshots drained stage by stage.

use super::places::Places;
use super::{BitmapConfig, BitmapPorts, Index, count_set, in_range, ones};
use crate::find::{encode, lowest, thermometer};
use weir_kit::*;

/// What the limit adds to [`words_in_ram`].
#[derive(Clone, Copy)]
struct Limit {
    /// The limit in force.
    now: Sig,
    /// The word that it cuts.
    word: Sig,
    /// What of that word was fetched but may not be offered.
    stash: Sig,
    /// The limit changes: no offers, and what is held goes back to RAM.
    resizing: Sig,
}

impl Limit {
    #[hw]
    fn new(c: &BitmapConfig) -> Limit {
        let low_bits = clog2(c.word_bits() as u64);
        let limit_now = reg(c.count_bits(), c.bits);
        let limit_word = limit_now.bits(low_bits, c.count_bits() - low_bits);
        comment("Fetched bits of the limit's word that may not be offered.");
        let stash = reg(c.word_bits(), 0);
        let resizing = reg(1, 0);
        Limit {
            now: limit_now,
            word: limit_word,
            stash,
            resizing,
        }
    }

    /// 1 bit: `word` is the one that the limit cuts.
    fn cuts(&self, word: Sig) -> Sig {
        self.word.eq(word.zext(self.word.width()))
    }
}

/// A place in a row of bits that is cut into equal groups: which group, and which bit of it, both onehot.
#[derive(Clone, Copy)]
struct Place {
    group: Sig,
    bit: Sig,
}

impl Place {
    /// Of the bit `index` of `groups` groups of `size` bits.
    fn of(index: Sig, groups: u32, size: u32) -> Place {
        let low = clog2(size as u64);
        let group = onehot(index.bits(low, index.width() - low), groups);
        Place {
            group,
            bit: onehot(index.trunc(low), size),
        }
    }

    /// The row with this bit alone.
    fn row(&self) -> Sig {
        spread(self.group, self.bit.width()) & self.bit.repeat(self.group.width())
    }
}

/// Each bit of `groups` repeated `size` times.
fn spread(groups: Sig, size: u32) -> Sig {
    let parts: Vec<Sig> = groups
        .to_bits()
        .into_iter()
        .rev()
        .map(|g| g.repeat(size))
        .collect();
    cat(&parts)
}

/// For each group of `size` bits, whether it holds a bit.
fn group_any(row: Sig, size: u32) -> Sig {
    let parts: Vec<Sig> = row
        .chunks(size)
        .into_iter()
        .rev()
        .map(|g| g.any())
        .collect();
    cat(&parts)
}

#[hw]
pub(super) fn words_in_ram(p: BitmapPorts, c: &BitmapConfig) -> Option<Places> {
    let w = c.word_bits();
    let m = c.bits.div_ceil(w);
    let low_bits = clog2(w as u64);
    let word_bits = clog2(m as u64);
    // Words, and the bits of a word, are searched in groups of about the square root of their number.
    let word_rows = 1 << word_bits;
    let words_a_group = 1 << word_bits.div_ceil(2);
    let word_groups = word_rows / words_a_group;
    let part_bits = clog2(words_a_group as u64);
    let bits_a_group = 1 << low_bits.div_ceil(2);
    let bit_groups = w / bits_a_group;
    let low_part = clog2(bits_a_group as u64);

    comment("Words that hold a bit in RAM; the RAM's word means something only then.");
    let has = reg(word_rows, 0);
    comment("Words of one group on their way to sel.");
    let batch = reg(words_a_group, 0);
    let batch_group = reg_nr(word_bits - part_bits);
    comment("The word to be fetched next.");
    let sel_valid = reg(1, 0);
    let sel_word = reg_nr(word_bits);
    let fetched_valid = reg(1, 0);
    let fetched_word = reg_nr(word_bits);
    comment("A put that met its word while it was being read: the group and the bit, both onehot.");
    let extra_group = reg_nr(bit_groups);
    let extra_bit = reg_nr(bits_a_group);
    comment("The word being drained, group by group.");
    let cur = reg(w, 0);
    let cur_word = reg_nr(word_bits);
    comment("The group being drained, bit by bit.");
    let part = reg(bits_a_group, 0);
    let part_index = reg_nr(c.index_bits() - low_part);
    let out_valid = reg(1, 0);
    let out_index = reg_nr(c.index_bits());
    let put_copy = Mem::new(m as u64, w);
    let fetch_copy = Mem::new(m as u64, w);
    let limit = c.limited.then(|| Limit::new(c));
    if limit.is_none() {
        unused(p.limit);
    }

    // Out. While the limit changes it goes back through the put port's free cycles.
    let offered = limit.map_or(out_valid, |l| out_valid & !l.resizing);
    p.take.offer(offered, &Index { index: out_index });
    let give_back = limit.map(|l| l.resizing & out_valid & !p.put.valid);
    let out_free = match give_back {
        Some(give_back) => !out_valid | (offered & p.take.ready) | give_back,
        None => !out_valid | p.take.ready,
    };

    // Put, first cycle: read the word. After reset the fill goes over the words in the same way.
    let exists = in_range(c, p.put.index);
    let filling = c.full.then(|| reg(1, 1));
    let fill_word = c.full.then(|| reg(word_bits, 0));
    let new_put = filling.map_or(p.put.valid & exists, |f| p.put.valid & exists & !f);
    let feed_index = if c.limited {
        p.put.valid.mux(p.put.index, out_index)
    } else {
        p.put.index
    };
    let index_word = feed_index.bits(low_bits, word_bits);
    let feed_word = match (filling, fill_word) {
        (Some(filling), Some(fill_word)) => filling.mux(fill_word, index_word),
        _ => index_word,
    };
    let feed = [Some(new_put), give_back, filling]
        .into_iter()
        .flatten()
        .reduce(|a, b| a | b)
        .unwrap_or(new_put);

    // Second cycle: set the bit.
    let put_valid = reg(1, 0);
    let put_new = reg_nr(1);
    let put_word = reg_nr(word_bits);
    let put_bit = reg_nr(low_bits);
    put_valid.set(feed);
    put_new.set(new_put);
    when(feed, || {
        put_word.set(feed_word);
        put_bit.set(feed_index.trunc(low_bits));
    });
    let put_fill = filling.map(|f| {
        let put_fill = reg(1, 0);
        put_fill.set(f & !p.clear);
        put_fill
    });
    let read_word = put_copy.read(feed, feed_word);
    comment("The word written last, for a put that read it at that time; else 0.");
    let forward = reg_nr(w);
    let forwarded = reg_nr(1);
    let has_put = |word: Sig| word.index(put_bit);
    let put_at = Place::of(put_bit, bit_groups, bits_a_group);
    let put_word_at = Place::of(put_word, word_groups, words_a_group);
    let in_batch =
        batch_group.eq(put_word.hi(word_bits - part_bits)) & (batch & put_word_at.bit).any();
    let sel_here = sel_valid & sel_word.eq(put_word);
    let live = has.index(put_word) | in_batch | sel_here;

    // Where the bit is already.
    let fetch = wire(1);
    let fetch_word = fetch_copy.read(fetch, sel_word);
    // What was just written is live.
    let read_counts = live & !forwarded;
    let in_ram = (has_put(forward) & forwarded) | (has_put(read_word) & read_counts);
    let in_cur = cur_word.eq(put_word) & has_put(cur);
    let in_part = part_index.eq(cat(&[put_word, put_bit.hi(low_bits - low_part)]))
        & (part & put_at.bit).any();
    let in_out = out_valid & out_index.eq(cat(&[put_word, put_bit]));
    let in_flops = in_cur | in_part | in_out;
    let in_hand = limit.map_or(in_flops, |l| {
        in_flops | (l.cuts(put_word) & has_put(l.stash))
    });
    let in_extra = (extra_group & put_at.group).any() & (extra_bit & put_at.bit).any();
    let in_fetched = fetched_valid & fetched_word.eq(put_word) & (has_put(fetch_word) | in_extra);
    let is_set = in_ram | in_hand | in_fetched;

    // Out takes the lowest bit of part; an emptied part the lowest group of cur, or the put itself when there is nothing.
    let first = lowest(part);
    when(out_free, || out_valid.set(part.any()));
    when(out_free & part.any(), || {
        out_index.set(cat(&[part_index, encode(first.onehot)]))
    });
    let part_free = part.none() | (out_free & first.rest.none());
    let cur_groups = group_any(cur, bits_a_group);
    let group = lowest(cur_groups);
    let next_part = select_onehot(group.onehot, &cur.chunks(bits_a_group));
    let may_offer = limit.map(|l| {
        let put_below = reg_nr(1);
        put_below.set(feed_index.zext(c.count_bits()).lt(l.now));
        put_below & !l.resizing
    });
    let alone = put_valid & part_free & cur_groups.none() & !(live | in_hand | fetched_valid);
    let straight = [may_offer, put_fill.map(|f| !f)]
        .into_iter()
        .flatten()
        .fold(alone, |a, b| a & b);
    when(out_free, || part.set(first.rest));
    when(part_free, || {
        part.set(next_part | (put_at.bit & straight.repeat(bits_a_group)))
    });
    when(part_free & cur_groups.any(), || {
        part_index.set(cat(&[cur_word, encode(group.onehot)]))
    });
    when(straight, || {
        part_index.set(cat(&[put_word, put_bit.hi(low_bits - low_part)]))
    });

    // Cur: an emptied one takes the fetched word.
    let cur_free = cur_groups.none() | (part_free & group.rest.none());
    let load = cur_free & fetched_valid;
    let extra = Place {
        group: extra_group,
        bit: extra_bit,
    };
    let fetched = fetch_word | extra.row();
    let to_cur = match limit {
        Some(l) => {
            comment("Bits below the limit in the word that it cuts.");
            let below = reg(w, 0);
            below.set(thermometer(l.now.trunc(low_bits), w));
            let cut = l.cuts(fetched_word);
            let back = l.resizing & cur_free & !fetched_valid & l.stash.any();
            when(load & cut, || l.stash.set(l.stash | (fetched & !below)));
            when(back, || {
                l.stash.set(0);
                cur_word.set(l.word.resize(word_bits));
            });
            when(p.clear, || l.stash.set(0));
            (fetched & (below | (!cut).repeat(w)) & load.repeat(w)) | (l.stash & back.repeat(w))
        }
        None => fetched & load.repeat(w),
    };
    let leaving = group.onehot & part_free.repeat(bit_groups);
    cur.set((cur & !spread(leaving, bits_a_group)) | to_cur);
    when(load, || cur_word.set(fetched_word));

    // The write: the word with the bit set. A put into the word that is being read joins it behind the read instead.
    fetch.set(sel_valid & (!fetched_valid | load));
    let join = put_valid & fetch & sel_here;
    let is_bit = !(in_hand | in_fetched);
    // A put of a bit that is in hand writes nothing: it would make a word live that holds no bit.
    let adds = put_fill.map_or(is_bit, |f| is_bit | f);
    let write = put_valid & !join & !straight & adds;
    let set_at = match put_fill {
        // The fill sets every bit.
        Some(f) => Place {
            group: (put_at.group & is_bit.repeat(bit_groups)) | f.repeat(bit_groups),
            bit: put_at.bit | f.repeat(bits_a_group),
        },
        None => Place {
            group: put_at.group & is_bit.repeat(bit_groups),
            bit: put_at.bit,
        },
    };
    let old_word = forward | (read_word & read_counts.repeat(w));
    let with_bit = old_word | set_at.row();
    let new_word = if c.bits.is_multiple_of(w) {
        with_bit
    } else {
        with_bit & full_word(c, put_word)
    };
    put_copy.write(write, put_word, new_word);
    fetch_copy.write(write, put_word, new_word);
    let again = write & put_word.eq(feed_word);
    forwarded.set(again);
    when(again, || forward.set(new_word)).otherwise(|| forward.set(0));
    fetched_valid.set(fetch | (fetched_valid & !load));
    when(fetch, || {
        fetched_word.set(sel_word);
        extra_group.set(put_at.group & (join & is_bit).repeat(bit_groups));
        extra_bit.set(put_at.bit);
    });

    // Sel takes the lowest word of batch; an emptied batch the next group of words that hold a bit, around.
    let busy_filling = filling.zip(put_fill).map(|(a, b)| a | b);
    let held_up = [busy_filling, limit.map(|l| l.resizing)]
        .into_iter()
        .flatten()
        .reduce(|a, b| a | b);
    let sel_free = !sel_valid | fetch;
    let batch_first = lowest(batch);
    when(sel_free, || {
        sel_valid.set(batch.any());
        batch.set(batch_first.rest);
    });
    when(sel_free & batch.any(), || {
        sel_word.set(cat(&[batch_group, encode(batch_first.onehot)]))
    });
    let allowed = limit.map(|l| {
        comment("Words that the limit leaves.");
        let allowed = reg(word_rows, 0);
        // Those up to the one that the limit cuts.
        allowed.set(cat(&[thermometer(l.word, word_rows - 1), lit(1, 1)]));
        allowed
    });
    let eligible = allowed.map_or(has, |a| has & a);
    let word_group_any = group_any(eligible, words_a_group);
    let round = reg(word_groups, 0);
    let ahead = word_group_any & round;
    let choice = lowest(ahead.any().mux(ahead, word_group_any));
    let batch_free = batch.none() | (sel_free & batch_first.rest.none());
    let refill = held_up.map_or(batch_free, |h| batch_free & !h);
    when(refill, || {
        batch.set(select_onehot(
            choice.onehot,
            &eligible.chunks(words_a_group),
        ))
    });
    when(refill & word_group_any.any(), || {
        batch_group.set(encode(choice.onehot));
        round.set(choice.above);
    });
    let emptied = spread(choice.onehot & refill.repeat(word_groups), words_a_group);
    let emptied = allowed.map_or(emptied, |a| emptied & a);
    let mark = Place {
        group: put_word_at.group & (write & !live).repeat(word_groups),
        bit: put_word_at.bit,
    };
    has.set((has & !emptied) | mark.row());

    if let Some(l) = limit {
        let held = cur_groups.any()
            | part.any()
            | out_valid
            | l.stash.any()
            | fetched_valid
            | sel_valid
            | batch.any();
        let changed = p.limit.ne(l.now);
        when(busy_filling.map_or(changed, |b| changed & !b), || {
            l.resizing.set(1)
        });
        when(l.resizing & !held, || {
            l.now.set(p.limit);
            l.resizing.set(changed);
        });
        when(p.clear, || l.resizing.set(0));
    }
    if let (Some(filling), Some(fill_word)) = (filling, fill_word) {
        let last = fill_word.eq(m - 1);
        when(filling, || {
            fill_word.set(last.mux(0, fill_word + 1));
            filling.set(!last);
        });
        when(p.clear, || {
            fill_word.set(0);
            filling.set(1);
        });
    }
    when(p.clear, || {
        has.set(0);
        batch.set(0);
        sel_valid.set(0);
        fetched_valid.set(0);
        cur.set(0);
        part.set(0);
        out_valid.set(0);
        put_valid.set(0);
    });

    count_set(&p, c, put_valid & put_new & !is_set);
    let double_put = reg(1, 0);
    double_put.set(put_valid & put_new & is_set & !p.clear);
    p.error_double_put.set(double_put);
    // Both errors come two cycles after the put.
    let bad_put = reg(1, 0);
    let bad_put_late = reg(1, 0);
    bad_put.set(p.put.valid & !exists & !p.clear);
    bad_put_late.set(bad_put & !p.clear);
    p.error_range.set(bad_put_late);
    p.clearing.set(busy_filling.unwrap_or(lit(0, 1)));
    let moves = (part.any() & !out_valid)
        | (cur_groups.any() & part.none())
        | (fetched_valid & cur_groups.none())
        | (sel_valid & !fetched_valid)
        | (batch.any() & !sel_valid)
        | (word_group_any.any() & batch.none());
    let puts = put_valid | double_put | bad_put | bad_put_late;
    let rest = [busy_filling, limit.map(|l| l.resizing | p.limit.ne(l.now))];
    p.idle
        .set(!rest.into_iter().flatten().fold(moves | puts, |a, b| a | b));

    if c.limited || !super::check::is_checked(c) {
        return None;
    }
    let places = formal(|| {
        let batch_words =
            spread(onehot(batch_group, word_groups), words_a_group) & batch.repeat(word_groups);
        let sel_words = onehot(sel_word, word_rows) & sel_valid.repeat(word_rows);
        assert(
            "a_word_is_in_one_place",
            ((has & batch_words) | (has & sel_words) | (batch_words & sel_words)).none(),
        );
        Places {
            has,
            batch: batch_words,
            sel: sel_words,
            put_copy,
            fetch_copy,
            fetched_valid,
            fetched_word,
            fetched,
            cur_word,
            cur,
            part_index,
            part,
            out_valid,
            out_index,
            put_valid,
            put_new,
            put_word,
            put_bit,
            is_set,
            forwarded,
            forward,
            read_word,
            fill: filling
                .zip(fill_word)
                .zip(put_fill)
                .map(|((reads, next), put)| (reads, next, put)),
        }
    });
    Some(places)
}

/// Word `number` of a full set; the last one may be partial.
fn full_word(c: &BitmapConfig, number: Sig) -> Sig {
    let w = c.word_bits();
    match c.bits % w {
        0 => ones(w, w),
        left => number.eq(c.bits / w).mux(ones(left, w), ones(w, w)),
    }
}
