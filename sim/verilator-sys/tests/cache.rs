//! The cache: hits are quick, its size is bounded, what is in use stays, builders do not race.

use std::path::Path;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use verilator_sys::{Error, Model, Spec, Toolchain};

fn spec(n: u32) -> Spec {
    let text = format!(
        "module m(input clk, output reg [31:0] y); always @(posedge clk) y <= {n}; endmodule"
    );
    Spec::new("m", [("m.v", text)])
}

/// Folders of models, without the runtime's.
fn models(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir)
        .expect("the cache is there")
        .flatten();
    entries
        .filter(|e| e.path().is_dir() && e.path().join("model.so").exists())
        .inspect(|e| assert!(!e.file_name().to_string_lossy().starts_with("tmp-")))
        .count()
}

#[test]
fn hits_bound_and_races() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let tools = Toolchain::find()?.cache(dir.path(), 2 << 30);
    let build = |tools: &Toolchain, n| Model::build_with(tools, &spec(n));

    // Many want the same at once: one builds.
    let same: Vec<Model> = (0..4)
        .into_par_iter()
        .map(|_| build(&tools, 0))
        .collect::<Result<_, Error>>()?;
    assert_eq!(same.iter().filter(|m| m.was_built()).count(), 1);
    let start = Instant::now();
    assert!(!build(&tools, 0)?.was_built());
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "a hit took {:?}",
        start.elapsed()
    );

    drop(same);

    // 0 is the least recently used but in use, then 1, then 2.
    let held = build(&tools, 0)?;
    for n in 1..3 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(build(&tools, n)?.was_built());
    }
    assert_eq!(models(dir.path()), 3);
    // Room for these and not for another (plus some bytes, should two models differ): 1 goes.
    let limit = sizes(dir.path()) + 1000;
    let snug = tools.clone().cache(dir.path(), limit);
    assert!(build(&snug, 3)?.was_built());
    assert_eq!(models(dir.path()), 3);
    assert!(sizes(dir.path()) <= limit);
    assert!(!build(&tools, 0)?.was_built() && !build(&tools, 2)?.was_built());
    assert!(build(&tools, 1)?.was_built());
    // The one in use still works.
    let mut sim = held.instance(1)?;
    sim.tick();
    assert_eq!(sim.get(sim.output("y")?), 0);
    Ok(())
}

fn sizes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir)
        .expect("the cache is there")
        .flatten()
        .filter(|e| e.path().is_dir());
    entries
        .flat_map(|e| std::fs::read_dir(e.path()).expect("a folder").flatten())
        .map(|f| f.metadata().expect("a file").len())
        .sum()
}
