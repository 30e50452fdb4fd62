//! Where the bits of a set in RAM are: the invariant that makes its promises inductive.

use super::check::{Checked, OFFER_WITHIN};
use super::{BitmapConfig, ones};
use weir_kit::*;

/// Every register that holds bits of [`super::words::words_in_ram`], and both copies of the words.
pub(super) struct Places {
    /// Words whose RAM word counts: in `has`, `batch`, `sel`.
    pub has: Sig,
    pub batch: Sig,
    pub sel: Sig,
    pub put_copy: Mem,
    pub fetch_copy: Mem,
    pub fetched_valid: Sig,
    pub fetched_word: Sig,
    pub fetched: Sig,
    pub cur_word: Sig,
    pub cur: Sig,
    pub part_index: Sig,
    pub part: Sig,
    pub out_valid: Sig,
    pub out_index: Sig,
    pub put_valid: Sig,
    pub put_new: Sig,
    pub put_word: Sig,
    pub put_bit: Sig,
    /// The put's bit is somewhere already.
    pub is_set: Sig,
    /// What the put has read of its word: `forward` or `read_word`.
    pub forwarded: Sig,
    pub forward: Sig,
    pub read_word: Sig,
    /// Of a set that starts full: the word that is read next, and `put_fill`.
    pub fill: Option<(Sig, Sig, Sig)>,
}

impl Places {
    /// Asserts that no bit is in two places, and more that holds between the stages. Returns the members: a bit a number, those under
    /// way to RAM included.
    #[hw]
    pub fn check(&self, c: &BitmapConfig, ghosts: &Checked) -> Sig {
        let w = c.word_bits();
        let words = c.bits.div_ceil(w);
        let live = self.has | self.batch | self.sel;
        let pending = self.put_valid & self.put_new & !self.is_set;
        let is_put = self.put_valid & self.put_new;
        assert(
            "a_put_is_judged_late_as_at_once",
            pending.eq(ghosts.added_late) & (is_put & self.is_set).eq(ghosts.double_late),
        );
        let filling = self.fill.map_or(lit(0, 1), |(f, _, put)| f | put);
        let mut rows = vec![];
        let (mut apart, mut full, mut same, mut filled) = (vec![], vec![], vec![], vec![]);
        for i in 0..words {
            let at = |word: Sig| word.eq(i);
            let address = lit(i.into(), self.put_copy.addr_width());
            let copy = self.put_copy.read_async(address);
            let groups = w / self.part.width();
            let parts: Vec<Sig> = (0..groups)
                .rev()
                .map(|g| self.part & self.part_index.eq(i * groups + g).repeat(self.part.width()))
                .collect();
            let low = clog2(w as u64);
            let out_here = self.out_valid & at(self.out_index.hi(self.out_index.width() - low));
            let rows_here = [
                copy & live.bit(i).repeat(w),
                self.fetched & (self.fetched_valid & at(self.fetched_word)).repeat(w),
                self.cur & at(self.cur_word).repeat(w),
                cat(&parts),
                onehot(self.out_index.trunc(low), w) & out_here.repeat(w),
                onehot(self.put_bit, w) & (pending & at(self.put_word)).repeat(w),
            ];
            let mut here = lit(0, w);
            for row in rows_here {
                apart.push((here & row).none());
                here = here | row;
            }
            rows.push(here);
            full.push(!live.bit(i) | copy.any());
            same.push(!live.bit(i) | copy.eq(self.fetch_copy.read_async(address)));
            if let Some((_, next, put_fill)) = self.fill {
                let due = put_fill.mux(self.put_word, next);
                let done = due.gt(i);
                let number = c.bits - i * w;
                let whole = copy.eq(ones(number.min(w), w));
                filled.push(self.has.bit(i).eq(done) & (!done | whole));
            }
        }
        assert("a_bit_is_in_one_place", filling | all_of(&apart));
        full.push(!self.fetched_valid | self.fetched.any());
        assert("no_empty_word_is_live", all_of(&full));
        assert("live_words_are_the_same_in_both_copies", all_of(&same));
        let held = cat(&rows.into_iter().rev().collect::<Vec<_>>());
        if live.width() * w > c.bits {
            let below = |holds: Sig, x: Sig, end: u32| !holds | x.zext(32).lt(end);
            let exist = [
                below(self.fetched_valid, self.fetched_word, words),
                below(self.cur.any(), self.cur_word, words),
                below(
                    self.part.any(),
                    self.part_index,
                    words * w / self.part.width(),
                ),
                below(self.out_valid, self.out_index, c.bits),
                below(self.put_valid, self.put_word, words),
                !(self.put_valid & self.put_new)
                    | cat(&[self.put_word, self.put_bit]).zext(32).lt(c.bits),
            ];
            assert("only_numbers_that_exist_are_held", all_of(&exist));
            if live.width() > words {
                let beyond = live.bits(words, live.width() - words);
                assert("only_words_that_exist_are_live", beyond.none());
            }
            if held.width() > c.bits {
                let beyond = held.bits(c.bits, held.width() - c.bits);
                assert("only_bits_that_exist_are_held", beyond.none());
            }
        }
        let stored = self
            .put_copy
            .read_async(self.put_word.resize(self.put_copy.addr_width()));
        let put_live = (live & onehot(self.put_word, live.width())).any();
        let known = self.forwarded.mux(self.forward, self.read_word);
        assert(
            "a_put_knows_its_word",
            !self.put_valid | !put_live | known.eq(stored),
        );
        assert(
            "what_was_forwarded_is_live",
            !self.put_valid | !self.forwarded | put_live,
        );
        let stale = !self.forwarded & self.forward.any();
        assert("nothing_else_is_forwarded", !self.put_valid | !stale);
        let moving = self.batch.any()
            | self.sel.any()
            | self.fetched_valid
            | self.cur.any()
            | self.part.any()
            | self.out_valid;
        if let Some((reads, next, put_fill)) = self.fill {
            assert(
                "fills_word_after_word",
                !filling | (all_of(&filled) & !moving),
            );
            let follows = self
                .put_word
                .eq(reads.mux(next - 1, lit((words - 1).into(), next.width())));
            let right = put_fill.mux(
                self.put_valid & !self.put_new & follows & (!reads | next.any()),
                !reads | next.none(),
            );
            assert(
                "fill_is_in_step",
                right
                    & (!self.put_valid | put_fill | (self.put_new & !reads))
                    & (!reads | next.le(words - 1)),
            );
        } else {
            assert("every_put_is_new", !self.put_valid | self.put_new);
        }

        comment("stages to the offer, each a cycle");
        let stages = [
            self.out_valid,
            self.part.any(),
            self.cur.any(),
            self.fetched_valid,
            self.sel.any(),
            self.batch.any(),
            self.has.any(),
        ];
        let mut to_go = lit(stages.len() as u128, 4);
        for (i, holds) in stages.iter().enumerate().rev() {
            to_go = holds.mux(lit(i as u128, 4), to_go);
        }
        let something = moving | self.has.any() | pending;
        assert(
            "moves_on",
            filling | !something | (ghosts.unoffered + to_go).le(OFFER_WITHIN),
        );
        held.trunc(c.bits)
    }
}
