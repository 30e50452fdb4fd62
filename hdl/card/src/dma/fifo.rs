//! Small parts that the data path is built of, made inside the calling module: a FIFO, a waiting room, a
//! pool of numbers, an arbiter.

use weir_kit::*;

/// A FIFO; see [`fifo`].
pub struct Fifo<T> {
    /// Drive valid and payload; read ready.
    pub input: Stream<T>,
    /// Read valid and payload; drive ready.
    pub output: Stream<T>,
}

/// A FIFO of `depth` (a power of two, at least 2) entries in LUT RAM behind an output register, so it holds `depth + 1`.
///
/// An entry shows at the output the cycle after it went in; one in and one out every cycle. `ready` and the output are
/// registers, so it also cuts combinational paths: with depth 2 it is an AXI register slice.
#[track_caller]
pub fn fifo<T: Bundle>(name: &str, p: &T::Params, depth: u64) -> Fifo<T> {
    scope(name, || fifo_body(p, depth))
}

#[hw]
fn fifo_body<T: Bundle>(p: &T::Params, depth: u64) -> Fifo<T> {
    let bits = clog2(depth);
    let input = Stream {
        valid: wire(1),
        payload: T::wire(p),
        ready: wire(1),
    };
    let out_valid = reg(1, 0);
    let out = T::reg_nr(p);
    let take = wire(1);

    let ram = Mem::new(depth, T::width_of(p)).style(Style::Distributed);
    let wr = reg(bits, 0);
    let rd = reg(bits, 0);
    let stored = reg(bits + 1, 0);
    let ram_empty = stored.eq(0);
    let load = !out_valid | take;
    let from_ram = load & !ram_empty;
    let put = input.valid & input.ready;
    let store = put & !(load & ram_empty);
    input.ready.set(!stored.bit(bits));
    ram.write(store, wr, input.payload.pack());
    when(store, || wr.set(wr + 1));
    when(from_ram, || rd.set(rd + 1));
    when(store & !from_ram, || stored.set(stored + 1))
        .elsewhen(from_ram & !store, || stored.set(stored - 1));
    let stored_item = T::unpack(p, ram.read_async(rd));
    when(load, || {
        out_valid.set(!ram_empty | put);
        out.set(&T::choose(ram_empty, &input.payload, &stored_item));
    });
    Fifo {
        input,
        output: Stream {
            valid: out_valid,
            payload: out,
            ready: take,
        },
    }
}

/// Where what comes in `from` waits when it cannot go on at once: never refused, and 0 cycles while nothing waits.
///
/// At most `n` come before they have gone on (asserted). Drive `ready` of what is returned.
#[track_caller]
pub fn waiting_room<T: Bundle>(name: &str, p: &T::Params, n: u32, from: &Stream<T>) -> Stream<T> {
    scope(name, || waiting_room_body(p, n, from))
}

#[hw]
fn waiting_room_body<T: Bundle>(p: &T::Params, n: u32, from: &Stream<T>) -> Stream<T> {
    let ready = wire(1);
    let waiting = fifo::<T>("waiting", p, (n as u64).next_power_of_two().max(2));
    let waits = waiting.output.valid;
    waiting
        .input
        .offer(from.valid & (waits | !ready), &from.payload);
    assert("all_that_comes_fits", waiting.input.ready);
    waiting.output.ready.set(ready);
    from.ready.set(1);
    Stream {
        valid: waits | from.valid,
        payload: T::choose(waits, &waiting.output.payload, &from.payload),
        ready,
    }
}

/// A pool of numbers; see [`id_pool`].
pub struct IdPool {
    /// Read valid and the free number; drive ready.
    pub take: Stream<Sig>,
    /// Drive: a number comes back.
    pub put: Sig,
    /// Drive: which.
    pub put_id: Sig,
}

/// Hands out the numbers `0..n` (2 or more), each to one owner at a time, least recently returned first.
///
/// One out and one in every cycle, and no sweep after reset: a counter gives each number out for the first time.
#[track_caller]
pub fn id_pool(name: &str, n: u32) -> IdPool {
    scope(name, || id_pool_body(n))
}

#[hw]
fn id_pool_body(n: u32) -> IdPool {
    let bits = clog2(n as u64);
    let put = wire(1);
    let put_id = wire(bits);
    let ready = wire(1);
    let fresh = reg(bits + 1, 0);
    let used_all = fresh.eq(n);
    let returned = fifo::<Sig>("returned", &bits, (n as u64).next_power_of_two());
    returned.input.valid.set(put);
    returned.input.payload.set(put_id);
    assert("returned_fits", !put | returned.input.ready);
    returned.output.ready.set(ready & used_all);
    when(ready & !used_all, || fresh.set(fresh + 1));
    let valid = !used_all | returned.output.valid;
    let id = used_all.mux(returned.output.payload, fresh.trunc(bits));
    IdPool {
        take: Stream {
            valid,
            payload: id,
            ready,
        },
        put,
        put_id,
    }
}

/// Lowest set bit of `x`, alone.
#[track_caller]
pub fn lowest(x: Sig) -> Sig {
    x & (!x + 1)
}

/// Round-robin choice among the set bits of `requests`: a one-hot grant, zero when none is set. `used` says that the
/// grant was taken: the next search begins behind it. Until then the grant stays, as long as its request does.
#[track_caller]
pub fn round_robin(name: &str, requests: Sig, used: Sig) -> Sig {
    scope(name, || round_robin_body(requests, used))
}

#[hw]
fn round_robin_body(requests: Sig, used: Sig) -> Sig {
    let n = requests.width();
    let behind = reg(n, 0);
    let waiting = reg(n, 0);
    let later = requests & behind;
    let fresh = later.any().mux(lowest(later), lowest(requests));
    let still = requests & waiting;
    let grant = still.any().mux(still, fresh);
    waiting.set(used.mux(lit(0, n), grant));
    when(used & requests.any(), || behind.set(!(grant | (grant - 1))));
    grant
}
