use super::*;

const SHAPE: Shape = Shape {
    data_bytes: 32,
    id_bits: 4,
};

fn addr(addr: u64, len: u8) -> Addr {
    Addr {
        id: 1,
        addr,
        len,
        size: 5,
        burst: 1,
    }
}

fn ready() -> SlaveOut {
    SlaveOut {
        aw_ready: true,
        w_ready: true,
        ar_ready: true,
        ..Default::default()
    }
}

fn idle() -> MasterOut {
    MasterOut {
        b_ready: true,
        r_ready: true,
        ..Default::default()
    }
}

fn aw(a: Addr) -> MasterOut {
    MasterOut {
        aw_valid: true,
        aw: a,
        ..idle()
    }
}

fn w(strobe: u64, last: bool) -> MasterOut {
    MasterOut {
        w_valid: true,
        w_strb: strobe,
        w_last: last,
        ..idle()
    }
}

/// Plays the cycles and gives the rule that was broken first.
fn broken(cycles: &[(MasterOut, SlaveOut)]) -> Option<(Channel, String)> {
    let mut checker = Checker::new("host", SHAPE);
    let first = cycles
        .iter()
        .zip(0..)
        .find_map(|((m, s), n)| checker.check(n, m, s).err());
    first.map(|v| (v.channel, v.to_string()))
}

fn expect(cycles: &[(MasterOut, SlaveOut)], channel: Channel, part: &str) {
    let (found, message) = broken(cycles).expect("no rule was broken");
    assert_eq!(found, channel, "{message}");
    assert!(message.contains(part), "{message} does not say {part}");
}

#[test]
fn a_legal_write_and_read_pass() {
    let stalled = SlaveOut {
        aw_ready: false,
        w_ready: false,
        ..ready()
    };
    let both = MasterOut {
        aw_valid: true,
        aw: addr(0x1004, 1),
        ..w(0xffff_fff0, false)
    };
    let read = MasterOut {
        ar_valid: true,
        ar: addr(0xfe0, 0),
        ..idle()
    };
    let cycles = [
        (both, stalled),
        (both, ready()),
        (w(0xff, true), ready()),
        (read, ready()),
        (idle(), ready()),
    ];
    assert_eq!(broken(&cycles), None);
}

#[test]
fn handshake_rules() {
    let stalled = SlaveOut {
        aw_ready: false,
        ar_ready: false,
        w_ready: false,
        ..ready()
    };
    expect(
        &[(aw(addr(0, 0)), stalled), (idle(), stalled)],
        Channel::Aw,
        "valid fell",
    );
    expect(
        &[(aw(addr(0, 0)), stalled), (aw(addr(64, 0)), ready())],
        Channel::Aw,
        "payload changed",
    );
    expect(
        &[(w(1, true), stalled), (idle(), stalled)],
        Channel::W,
        "WVALID fell",
    );
    expect(
        &[(w(1, true), stalled), (w(2, true), stalled)],
        Channel::W,
        "payload changed",
    );
    let read = MasterOut {
        ar_valid: true,
        ar: addr(0, 0),
        ..idle()
    };
    expect(
        &[(read, stalled), (idle(), ready())],
        Channel::Ar,
        "valid fell",
    );
    let deaf = MasterOut::default();
    let unheard = (
        deaf,
        SlaveOut {
            b_valid: true,
            ..ready()
        },
    );
    expect(&[unheard], Channel::B, "BREADY");
    let unread = SlaveOut {
        r_valid: true,
        ..ready()
    };
    expect(&[(deaf, unread)], Channel::R, "RREADY");
    let mut cutting_through = Checker::new("media", SHAPE).r_may_stall();
    assert_eq!(cutting_through.check(0, &deaf, &unread), Ok(()));
}

#[test]
fn without_bus_mastering_no_request_begins() {
    let mut checker = Checker::new("host", SHAPE);
    let asks = aw(addr(0x1000, 1));
    let stalls = SlaveOut {
        aw_ready: false,
        ..ready()
    };
    checker.check(0, &asks, &stalls).unwrap();
    // It stands at the pins already.
    checker.none_begins(1, &asks).unwrap();
    checker.check(1, &asks, &ready()).unwrap();
    let broken = checker.none_begins(2, &asks).unwrap_err();
    assert_eq!(broken.channel, Channel::Aw);
}

#[test]
fn burst_rules() {
    expect(&[(aw(addr(0xfe0, 1)), ready())], Channel::Aw, "4 KiB");
    expect(
        &[(
            aw(Addr {
                burst: 2,
                ..addr(0, 0)
            }),
            ready(),
        )],
        Channel::Aw,
        "INCR",
    );
    expect(
        &[(
            aw(Addr {
                size: 6,
                ..addr(0, 0)
            }),
            ready(),
        )],
        Channel::Aw,
        "size",
    );
    expect(
        &[(
            aw(Addr {
                id: 16,
                ..addr(0, 0)
            }),
            ready(),
        )],
        Channel::Aw,
        "ID 0x10",
    );
    expect(&[(w(1, true), ready())], Channel::W, "before the address");
    expect(
        &[(aw(addr(0, 1)), ready()), (w(1, true), ready())],
        Channel::W,
        "WLAST is true on beat 1 of the 2",
    );
    expect(
        &[(aw(addr(0, 0)), ready()), (w(1, false), ready())],
        Channel::W,
        "WLAST is false",
    );
    expect(
        &[(aw(addr(4, 0)), ready()), (w(0xff, true), ready())],
        Channel::W,
        "outside the lanes",
    );
}

#[test]
fn an_unaligned_burst_reaches_from_its_first_byte() {
    let a = addr(0x1ff4, 0);
    assert_eq!(a.bytes(), 12);
    let a = addr(0x1004, 3);
    assert_eq!(
        (a.bytes(), a.beat_addr(1), a.beat_addr(3)),
        (124, 0x1020, 0x1060)
    );
    assert_eq!(lanes(&a, 0, SHAPE), 0xffff_fff0);
    assert_eq!(lanes(&a, 1, SHAPE), 0xffff_ffff);
    let narrow = Addr {
        size: 2,
        ..addr(0x100c, 1)
    };
    assert_eq!(
        (lanes(&narrow, 0, SHAPE), lanes(&narrow, 1, SHAPE)),
        (0xf000, 0xf_0000)
    );
}

#[test]
fn a_write_buffer_gives_back_the_enabled_bytes() {
    let word: [u64; MAX_WORDS] = std::array::from_fn(|i| 0x0101_0101_0101_0101 * (i as u64 + 1));
    let mut buffer = WriteBuffer::new(4096);
    buffer.start(0x1004, SHAPE);
    buffer.push(0x1004, 0xffff_fff0, &word, SHAPE);
    buffer.push(0x1020, 0xff, &word, SHAPE);
    assert_eq!((buffer.addr(), buffer.data().len()), (0x1004, 36));
    assert_eq!(
        (buffer.data()[0], buffer.data()[4], buffer.data()[35]),
        (1, 2, 1)
    );
    let mut runs = Vec::new();
    buffer.runs(SHAPE, |a, bytes| runs.push((a, bytes.len())));
    assert_eq!(runs, [(0x1004, 36)]);

    buffer.start(0x2000, SHAPE);
    buffer.push(0x2000, 0xff00_00f1, &word, SHAPE);
    buffer.push(0x2020, 0, &word, SHAPE);
    buffer.push(0x2040, 2, &word, SHAPE);
    let mut runs = Vec::new();
    buffer.runs(SHAPE, |a, bytes| runs.push((a, bytes.len())));
    assert_eq!(runs, [(0x2000, 1), (0x2004, 4), (0x2018, 8), (0x2041, 1)]);
}
