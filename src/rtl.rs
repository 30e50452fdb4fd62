//! `weir rtl`: the card's Verilog.

use std::fs;
use std::path::PathBuf;

use crate::Failure;
use crate::options::CardArgs;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    card: CardArgs,
    /// Folder for the files; made when it is not there.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// The file list, in an order in which every module is read before it is used.
const LIST: &str = "card.f";

/// Writes a file a module and the list.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = args.card.built().map_err(Failure::Usage)?;
    let files = weir_card::card::card(&config).files();
    let write = |name: &str, text: &str| {
        let path = args.output.join(name);
        fs::write(&path, text)
            .map_err(|e| Failure::Usage(format!("cannot write {}: {e}", path.display())))
    };
    fs::create_dir_all(&args.output)
        .map_err(|e| Failure::Usage(format!("cannot make {}: {e}", args.output.display())))?;
    // The modules of a card that was written here before, by its list.
    for name in fs::read_to_string(args.output.join(LIST))
        .unwrap_or_default()
        .lines()
    {
        if name.ends_with(".v") && !name.contains('/') {
            let _ = fs::remove_file(args.output.join(name));
        }
    }
    let mut list = String::new();
    for (name, text) in &files {
        write(name, text)?;
        list += name;
        list.push('\n');
    }
    write(LIST, &list)?;
    crate::say(&format!(
        "{} modules of the {} card in {}; list: {LIST}\n",
        files.len(),
        config.name,
        args.output.display()
    ))
}
