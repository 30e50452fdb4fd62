//! The emitted Verilog, byte by byte. `WEIR_BLESS=1 cargo test -p weir-kit` writes the files anew.
mod common;
use weir_kit::Module;

fn check(m: &Module) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, text) in m.files() {
        let path = dir.join(&name);
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(&path, &text).expect("golden file is writable");
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        for (i, (a, b)) in text.lines().zip(want.lines()).enumerate() {
            assert_eq!(
                a,
                b,
                "{name}:{}: emitted (left) differs from the golden file",
                i + 1
            );
        }
        assert_eq!(text.len(), want.len(), "{name}: lengths differ");
    }
}

#[test]
fn fifo_pair() {
    check(&common::pair(&common::Config { slots: 4 }));
}

#[test]
fn kitchen_sink() {
    check(&common::kitchen_sink());
}

#[test]
fn the_same_bytes_every_time() {
    assert_eq!(
        common::kitchen_sink().files(),
        common::kitchen_sink().files()
    );
}

#[test]
fn children_come_first_and_once() {
    let names: Vec<String> = common::pair(&common::Config { slots: 4 })
        .files()
        .into_iter()
        .map(|f| f.0)
        .collect();
    assert_eq!(names, ["fifo_4.v", "fifo_pair.v"]);
}

/// What is outside of the kitchen sink.
const VENDOR_CELL: &str =
    "module vendor_cell (input wire clk, input wire rst, input wire [7:0] d, output wire [7:0] q);
  assign q = d;
  wire _unused_ok = &{1'b0, clk, rst};
endmodule
";

#[test]
fn lint_finds_nothing() {
    let mut files = common::kitchen_sink().files();
    files.push(("vendor_cell.v".into(), VENDOR_CELL.into()));
    verilator_sys::lint(files, "kitchen_sink").expect("no warning");
    verilator_sys::lint(
        common::pair(&common::Config { slots: 4 }).files(),
        "fifo_pair",
    )
    .expect("no warning");
}
