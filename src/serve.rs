//! `weir serve`: the simulated card as a PCI device over vfio-user.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use weir_card::config::CardConfig;
use weir_sim::link::Link;
use weir_sim::media::file::MediaFile;
use weir_sim::media::{MOST_BYTES, Media};
use weir_sim::model::{self, ModelOptions};
use weir_sim::pattern::BLOCK;
use weir_sim::run;
use weir_sim::time::Latency;
use weir_sim::vfio_user::device::Device;
use weir_sim::vfio_user::server::{Listener, ServeError, Server};
use weir_sim::world::{World, WorldConfig};

use crate::Failure;
use crate::options::{CardArgs, PerLun, bandwidth, per_lun_latency, size};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where clients connect: a Unix socket, made here and removed at the end.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    #[command(flatten)]
    card: CardArgs,
    /// Capacity of every LUN (4m, 1g).
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1g")]
    lun_size: u64,
    /// Keeps the LUNs' data in this file, which is made when it is not there, and outlives guest and server; else data is
    /// gone with the server. Blocks never written read as zeros from a file, else as a pattern.
    #[arg(long, value_name = "FILE")]
    media: Option<PathBuf>,
    /// Media latency of one LUN or of all, simulated: 10us, 5us-20us (uniform), 5us~20us (5us and an exponential part).
    #[arg(long, value_name = "[LUN=]TIME", value_parser = per_lun_latency)]
    media_latency: Vec<PerLun<Latency>>,
    /// Bound on media's bandwidth, simulated, reads and writes together, bytes a second (8g).
    #[arg(long, value_name = "SIZE", value_parser = bandwidth)]
    media_bandwidth: Option<u64>,
    /// Between card and host: none, which is the fastest to simulate, or gen<1-5>x<lanes>.
    #[arg(long, value_name = "LINK", default_value = "none")]
    link: Link,
    /// Everything random follows from it; what unwritten blocks read as, too.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Checks the Verilog's assertions and starts registers without reset at random; slower.
    #[arg(long)]
    asserts: bool,
    /// Waveforms of everything served; much slower.
    #[arg(long, value_name = "OUT.FST")]
    trace: Option<PathBuf>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &Args) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let card = args.card.card(1).map_err(Failure::Usage)?;
    let world = world_config(args, &card)?;
    let luns = world.luns.len() as u32;

    let file = args
        .media
        .as_ref()
        .map(|path| MediaFile::open(path, &world.luns));
    let file = file.transpose().map_err(|e| usage(&e))?;
    // Before the card is built, which takes some time, so that a socket in use is told at once.
    let listener = Listener::bind(&args.socket).map_err(|e| usage(&e))?;
    let (stop, signal) = UnixStream::pair().map_err(|e| usage(&e))?;
    for number in [SIGINT, SIGTERM] {
        let signal = signal.try_clone().map_err(|e| usage(&e))?;
        signal_hook::low_level::pipe::register(number, signal).map_err(|e| usage(&e))?;
    }

    let options = ModelOptions {
        trace: args.trace.is_some(),
        asserts: args.asserts,
        random_collisions: false,
    };
    let built = model::build(&weir_card::card::card(&card), options).map_err(|e| usage(&e))?;
    let verilated = model::instance(&built, args.seed).map_err(|e| usage(&e))?;
    let wrong = |error: &dyn std::fmt::Display| Failure::Wrong(error.to_string());
    let mut world = World::new(Box::new(verilated), &world).map_err(|e| usage(&e))?;
    if let Some(file) = file {
        world.media().keep_in(file);
    }
    if let Some(path) = &args.trace {
        world.trace(path).map_err(|e| usage(&e))?;
    }
    let queues = args.card.queues.unwrap_or(card.queues);
    let tags = args.card.tags.unwrap_or(card.tags);
    run::bring_up(&mut world, queues, luns, tags).map_err(|e| wrong(&e))?;
    let device = Device::new(world).map_err(|e| wrong(&e))?;

    let mut log = |line: &str| say(io::stderr(), format_args!("weir: {line}"));
    let mut server = Server::new(listener, device, &mut log);
    let serving = format!(
        "serving a {} card on {}: {queues} queues x {} entries, {luns} LUNs of {} MiB, {tags} tags, link {}",
        card.name,
        args.socket.display(),
        card.entries,
        args.lun_size >> 20,
        args.link
    );
    say(
        io::stdout(),
        format_args!("{serving}\ntime is the simulator's; SIGINT or SIGTERM ends it"),
    );
    let started = Instant::now();
    let result = server.run(stop.as_fd());
    summary(&mut server, started.elapsed());
    match result {
        Ok(()) => Ok(()),
        Err(error @ ServeError::World(_)) => Err(wrong(&error)),
        Err(error) => Err(usage(&error)),
    }
}

fn world_config(args: &Args, card: &CardConfig) -> Result<WorldConfig, Failure> {
    let count = args.card.luns.unwrap_or(card.luns);
    let blocks = args.lun_size / BLOCK as u64;
    if blocks == 0 || !args.lun_size.is_multiple_of(BLOCK as u64) {
        return Err(Failure::Usage(format!(
            "--lun-size {}: must be whole blocks of {BLOCK} bytes, at least one",
            args.lun_size
        )));
    }
    if args.lun_size > MOST_BYTES / u64::from(count) {
        return Err(Failure::Usage(format!(
            "--lun-size {}: {count} LUNs of it are more than the 512 TiB that the card addresses",
            args.lun_size
        )));
    }
    let mut luns = Media::equal_luns(count, blocks, Latency::Fixed(0));
    for each in &args.media_latency {
        if each.lun.is_some_and(|lun| lun >= count) {
            return Err(Failure::Usage(format!(
                "--media-latency: the card has LUNs 0 to {}",
                count - 1
            )));
        }
        for (n, lun) in luns.iter_mut().enumerate() {
            if each.lun.is_none_or(|lun| lun as usize == n) {
                (lun.read_latency, lun.write_latency) = (each.value, each.value);
            }
        }
    }
    Ok(WorldConfig {
        link: args.link,
        media_bandwidth: args.media_bandwidth,
        vectors: card.queues as u16 + 1,
        seed: args.seed,
        ..WorldConfig::new(luns)
    })
}

/// Writes a line. Nobody need read it: a card that is served does not end with its log.
fn say(mut out: impl Write, line: Arguments<'_>) {
    let _ = writeln!(out, "{line}");
}

/// What was served.
fn summary(server: &mut Server<'_>, wall: Duration) {
    let served = server.served();
    let world = server.device().world();
    let (stats, media) = (world.stats(), world.media().moved());
    let mut text = format!(
        "served {} clients, {} messages; {} interrupts\n",
        served.clients,
        served.messages,
        world.host().interrupts()
    );
    text += &format!(
        "media: {} reads, {} bytes; {} writes, {} bytes (of at most 4 KiB each)\n",
        stats.media.reads, media.read, stats.media.writes, media.written
    );
    text += &format!(
        "{} cycles of the card, {} of them clocked, in {:.1} s",
        stats.cycles,
        stats.clocked,
        wall.as_secs_f64()
    );
    world.trace_end();
    say(io::stdout(), format_args!("{text}"));
}
