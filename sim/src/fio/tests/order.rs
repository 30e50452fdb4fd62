//! Which I/O, in which order: as fio 3.33 logged it (`write_iolog`) for the same job text. Where fio draws at random, what
//! does not depend on the draw.

use super::engine::planned;
use crate::fio::{Generator, Next, Op, PlanOptions};

/// Every I/O of one instance, completed as soon as issued: direction, LUN, byte offset, bytes.
fn all(text: &str, lun_bytes: u64, instance: usize) -> Vec<(char, u32, u64, u64)> {
    let options = PlanOptions {
        lun_bytes: Some(lun_bytes),
        ..PlanOptions::default()
    };
    let plan = planned(&format!("[g]\n{text}"), &options);
    let mut generator = Generator::new(&plan.instances[instance]);
    generator.start(0, None);
    let mut log = Vec::new();
    loop {
        match generator.next(0) {
            Next::Io(io) => {
                let kind = match io.op {
                    Op::Read => 'r',
                    Op::Write => 'w',
                    Op::Flush => 'f',
                };
                log.push((kind, io.lun, io.lba * 512, u64::from(io.blocks) * 512));
                generator.complete();
            }
            Next::Done => return log,
            other => panic!("{other:?} after {log:?}"),
        }
    }
}

const K: u64 = 1024;

fn offsets(log: &[(char, u32, u64, u64)]) -> Vec<u64> {
    log.iter().map(|io| io.2 / K).collect()
}

#[test]
fn sequential_ranges_begin_and_end_where_fio_s_do() {
    let seq = |text: &str| offsets(&all(text, 64 * K, 0));
    assert_eq!(
        seq("filename=x\nrw=read\nbs=4k\nsize=25%\noffset=33%\n"),
        [24, 28, 32, 36]
    );
    assert_eq!(
        seq("filename=x\nrw=read\nbs=4k\nsize=33%\n"),
        [0, 4, 8, 12, 16]
    );
    assert_eq!(
        seq("filename=x\nrw=read\nbs=4k\nsize=16k\nio_size=24k\n"),
        [0, 4, 8, 12, 0, 4]
    );
    assert_eq!(
        seq("filename=x\nrw=read\nbs=4k\nsize=32k\nio_size=50%\n"),
        [0, 4, 8, 12]
    );
    assert_eq!(seq("filename=x\nrw=read\nbs=8k\nsize=20k\n"), [0, 8, 16]);
    assert_eq!(
        seq("filename=x:y:z\nrw=read\nbs=8k\nsize=20k\n"),
        [0, 0, 0],
        "a part smaller than a block"
    );
    let third = all(
        "filename=x\nrw=read\nbs=16k\nsize=16k\nnumjobs=3\noffset_increment=16k\n",
        64 * K,
        2,
    );
    assert_eq!(third, [('r', 0, 32 * K, 16 * K)]);
}

#[test]
fn files_are_taken_as_file_service_type_says() {
    let of = |text: &str| {
        all(text, 64 * K, 0)
            .iter()
            .map(|io| (io.1, io.2 / K))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("filename=x:y\nrw=read\nbs=4k\nsize=32k\nfile_service_type=roundrobin:2\n"),
        [
            (0, 0),
            (0, 4),
            (1, 0),
            (1, 4),
            (0, 8),
            (0, 12),
            (1, 8),
            (1, 12)
        ]
    );
    assert_eq!(
        of("filename=x:y\nrw=read\nbs=16k\nsize=64k\nfile_service_type=sequential\n"),
        [(0, 0), (0, 16), (1, 0), (1, 16)]
    );
    let random = of("filename=x:y\nrw=read\nbs=4k\nsize=128k\nfile_service_type=random\n");
    let first = random.iter().filter(|io| io.0 == 0).count();
    assert_eq!((first, random.len()), (16, 32), "each to its end");
    assert!(
        random.windows(2).any(|w| w[0].0 == w[1].0) && random.windows(2).any(|w| w[0].0 != w[1].0)
    );
}

#[test]
fn a_mixed_sequential_job_has_a_position_for_each_direction() {
    let log = all("filename=x\nrw=rw\nbs=4k\nsize=64k\n", 64 * K, 0);
    for kind in ['r', 'w'] {
        let at: Vec<u64> = log
            .iter()
            .filter(|io| io.0 == kind)
            .map(|io| io.2)
            .collect();
        assert!(
            !at.is_empty() && at.iter().enumerate().all(|(i, &at)| at == i as u64 * 4 * K),
            "{kind} {at:?}"
        );
    }
    assert_eq!(log.len(), 16, "the directions share the size");
}

#[test]
fn the_mix_is_as_asked() {
    let log = all(
        "filename=x\nrw=randrw\nrwmixwrite=20\nbs=512\nsize=8m\n",
        8 << 20,
        0,
    );
    let writes = log.iter().filter(|io| io.0 == 'w').count() as f64;
    let (want, sigma) = (log.len() as f64 * 0.2, (log.len() as f64 * 0.16).sqrt());
    assert_eq!(log.len(), 16384);
    assert!(
        (writes - want).abs() < 5.0 * sigma,
        "{writes} of {}",
        log.len()
    );
    let none = all(
        "filename=x\nrw=randrw\nrwmixread=100\nbs=4k\nsize=1m\n",
        1 << 20,
        0,
    );
    assert!(none.iter().all(|io| io.0 == 'r'));
}

#[test]
fn the_random_map_takes_each_block_once_and_norandommap_does_not() {
    let mut once = offsets(&all(
        "filename=x\nrw=randread\nbs=4k\nsize=1m\n",
        1 << 20,
        0,
    ));
    let drawn = once.clone();
    once.sort();
    assert_eq!(once, (0..256).map(|i| i * 4).collect::<Vec<_>>());
    assert_ne!(drawn, once);
    let mut again = offsets(&all(
        "filename=x\nrw=randread\nbs=4k\nsize=1m\nnorandommap\n",
        1 << 20,
        0,
    ));
    again.sort();
    again.dedup();
    assert!(
        (130..200).contains(&again.len()),
        "1 - 1/e of 256 blocks: {}",
        again.len()
    );
}

#[test]
fn randrepeat_repeats_each_pass_and_numjobs_differ() {
    let text = |repeat: u32| {
        format!(
            "filename=x\nrw=randread\nbs=16k\nsize=256k\nloops=2\nnumjobs=2\nrandrepeat={repeat}\n"
        )
    };
    let log = offsets(&all(&text(1), 256 * K, 0));
    assert_eq!(log[..16], log[16..]);
    assert_ne!(log, offsets(&all(&text(1), 256 * K, 1)));
    let log = offsets(&all(&text(0), 256 * K, 0));
    assert_ne!(log[..16], log[16..]);
    let seeded = |seed: u32| offsets(&all(&format!("{}randseed={seed}\n", text(1)), 256 * K, 0));
    assert_eq!(seeded(7), seeded(7));
    assert_ne!(seeded(7), seeded(8));
}

#[test]
fn sizes_from_a_range_are_multiples_of_the_least_and_fill_the_range() {
    let log = all("filename=x\nrw=read\nbsrange=1k-8k\nsize=1m\n", 1 << 20, 0);
    assert!(
        log.iter()
            .all(|io| io.3 % K == 0 && (K..=8 * K).contains(&io.3))
    );
    assert_eq!(log.iter().map(|io| io.3).sum::<u64>(), 1 << 20);
    assert!(
        log.windows(2).all(|w| w[0].2 + w[0].3 == w[1].2),
        "no gap, no overlap"
    );
    let mut random = all(
        "filename=x\nrw=randread\nbsrange=1k-8k\nsize=1m\n",
        1 << 20,
        0,
    );
    random.sort_by_key(|io| io.2);
    assert!(
        random.windows(2).all(|w| w[0].2 + w[0].3 == w[1].2),
        "each block once: cut where the next is used"
    );
    let directions = all("filename=x\nrw=randrw\nbs=4k,8k\nsize=1m\n", 1 << 20, 0);
    assert!(
        directions
            .iter()
            .all(|io| io.3 == if io.0 == 'r' { 4 * K } else { 8 * K } && io.2 % io.3 == 0)
    );
}

#[test]
fn blockalign_moves_random_blocks_off_their_grid() {
    let log = all(
        "filename=x\nrw=randread\nbs=4k\nba=512\nsize=64k\n",
        64 * K,
        0,
    );
    assert!(log.iter().any(|io| io.2 % (4 * K) != 0) && log.iter().all(|io| io.2 + io.3 <= 64 * K));
}

#[test]
fn verification_reads_back_in_the_order_written() {
    let log = all(
        "filename=x\nrw=randwrite\nbs=4k\nsize=32k\nverify=crc32c\n",
        64 * K,
        0,
    );
    assert_eq!(log.len(), 16);
    assert_eq!(offsets(&log[..8]), offsets(&log[8..]));
    assert!(log[8..].iter().all(|io| io.0 == 'r'));
    // Without a random map by file and place, the later of two that overlap alone; io_size counts what verification reads.
    let of = |text: &str| {
        all(text, 64 * K, 0)
            .iter()
            .map(|io| (io.0, io.1, io.2 / K))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("filename=x:y\nrw=write\nbs=4k\nsize=16k\nverify=crc32c\nio_size=32k\n"),
        [
            ('w', 0, 0),
            ('w', 1, 0),
            ('w', 0, 4),
            ('w', 1, 4),
            ('r', 0, 0),
            ('r', 0, 4),
            ('r', 1, 0),
            ('r', 1, 4),
        ]
    );
    let mut once = of("filename=x\nrw=randwrite\nbs=4k\nsize=64k\nnorandommap\nverify=crc32c\n");
    let read: Vec<_> = once.split_off(16).iter().map(|io| io.2).collect();
    let written: std::collections::BTreeSet<u64> = once.iter().map(|io| io.2).collect();
    assert_eq!(read, written.into_iter().collect::<Vec<_>>());
    let quiet = all(
        "filename=x\nrw=randwrite\nbs=4k\nsize=32k\nverify=crc32c\ndo_verify=0\n",
        64 * K,
        0,
    );
    assert_eq!(quiet.len(), 8);
}

#[test]
fn flushes_follow_every_nth_write() {
    let log = all(
        "filename=x\nrw=write\nbs=4k\nsize=32k\nfsync=3\n",
        64 * K,
        0,
    );
    assert_eq!(log.iter().map(|io| io.0).collect::<String>(), "wwwfwwwfww");
    let end = all(
        "filename=x\nrw=write\nbs=4k\nsize=8k\nend_fsync=1\n",
        64 * K,
        0,
    );
    assert_eq!(end.iter().map(|io| io.0).collect::<String>(), "wwf");
    let read = all(
        "filename=x\nrw=read\nbs=4k\nsize=8k\nfsync_on_close=1\nfsync=1\n",
        64 * K,
        0,
    );
    assert_eq!(read.iter().map(|io| io.0).collect::<String>(), "rr");
}

#[test]
fn number_ios_and_io_size_end_a_job_early() {
    assert_eq!(
        all(
            "filename=x\nrw=randrw\nbs=4k,8k\nsize=64k\nnumber_ios=7\n",
            64 * K,
            0
        )
        .len(),
        7
    );
    assert_eq!(
        all(
            "filename=x\nrw=randread\nbs=4k\nsize=1m\nio_size=100k\n",
            1 << 20,
            0
        )
        .len(),
        25
    );
    assert_eq!(
        all(
            "filename=x\nrw=randread\nbs=16k\nsize=32k\nio_size=96k\nnorandommap\n",
            64 * K,
            0
        )
        .len(),
        6
    );
}
