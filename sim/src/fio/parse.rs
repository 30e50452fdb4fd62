//! The job file: ini sections with `[global]` defaults, as fio's `__parse_jobs_ini` reads them.
//!
//! Left out: `include`, arithmetic in parentheses, and the keywords `$pagesize`, `$mb_memory`, `$ncpus`: refused by name.

use std::fmt;

use super::options::{self, Arg, JobOptions, Support, Verify};

/// What was wrong with a job file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file, as it was named to the parser.
    pub file: String,
    /// Its line, from 1; 0 for the file as a whole.
    pub line: u32,
    /// The option, where one is at fault.
    pub option: Option<String>,
    /// What was wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        match &self.option {
            Some(option) => write!(f, ": {option}: {}", self.what),
            None => write!(f, ": {}", self.what),
        }
    }
}

impl std::error::Error for Error {}

/// An option that is in the file and has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Full name.
    pub option: &'static str,
    /// The first line that has it.
    pub line: u32,
}

/// A job section with the defaults in force where it stands.
#[derive(Clone, Debug)]
pub struct Section {
    /// The job's name; sections may share one.
    pub name: String,
    /// The line of its header.
    pub line: u32,
    /// Its options.
    pub options: JobOptions,
    /// The options written in the section itself, as fio's JSON repeats them.
    pub given: Vec<(String, String)>,
}

/// A parsed job file.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The file's name.
    pub path: String,
    /// Job sections in order.
    pub sections: Vec<Section>,
    /// What `[global]` sections say, as fio's JSON repeats it.
    pub global: Vec<(String, String)>,
    /// Options without effect, each once, in order of appearance.
    pub ignored: Vec<Ignored>,
    /// Remarks that fio, too, makes and goes on after.
    pub notes: Vec<String>,
}

/// Parses a job file; `${NAME}` in a value is replaced by the process's environment, as fio does.
///
/// # Errors
/// The first line that is malformed, unknown, or not supported.
pub fn parse(path: &str, text: &str) -> Result<JobFile, Error> {
    parse_with_env(path, text, &|name| std::env::var(name).ok())
}

/// [`parse`] with an environment of the caller's.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_env(
    path: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<JobFile, Error> {
    let mut parser = Parser {
        file: JobFile {
            path: path.into(),
            sections: Vec::new(),
            global: Vec::new(),
            ignored: Vec::new(),
            notes: Vec::new(),
        },
        defaults: JobOptions::default(),
        line: 0,
        env,
    };
    let mut current: Option<Raw> = None;
    for (line, content) in (1..).zip(text.lines()) {
        parser.line = line;
        // fio cuts a comment off anywhere, in a value as well.
        let content = content.split([';', '#']).next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if let Some(header) = content.strip_prefix('[') {
            if let Some(raw) = current.take() {
                parser.section(raw)?;
            }
            parser.line = line;
            let name = header
                .strip_suffix(']')
                .ok_or_else(|| parser.error(None, "the section header has no `]`"))?;
            if name.trim().is_empty() {
                return Err(parser.error(None, "the section has no name"));
            }
            current = Some(Raw {
                name: name.into(),
                line,
                options: Vec::new(),
            });
            continue;
        }
        let raw = current.as_mut().ok_or_else(|| {
            parser.error(
                None,
                &format!("`{content}` stands before the first [section]; put it into [global]"),
            )
        })?;
        if content.split_whitespace().next() == Some("include") {
            return Err(parser.error(None, "`include` is not supported yet; put the lines here"));
        }
        let (name, value) = match content.split_once('=') {
            Some((name, value)) => (name.trim(), Some(parser.expand(name.trim(), value.trim())?)),
            None => (content, None),
        };
        raw.options.push(RawOption {
            name: name.into(),
            value,
            line,
        });
    }
    if let Some(raw) = current {
        parser.section(raw)?;
    }
    if parser.file.sections.is_empty() {
        parser.line = 0;
        return Err(parser.error(None, "the file has no job section"));
    }
    Ok(parser.file)
}

/// A section before its options are understood.
struct Raw {
    name: String,
    line: u32,
    options: Vec<RawOption>,
}

struct RawOption {
    name: String,
    value: Option<String>,
    line: u32,
}

struct Parser<'a> {
    file: JobFile,
    defaults: JobOptions,
    line: u32,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl Parser<'_> {
    fn error(&self, option: Option<&str>, what: &str) -> Error {
        Error {
            file: self.file.path.clone(),
            line: self.line,
            option: option.map(Into::into),
            what: what.into(),
        }
    }

    /// Replaces each `${NAME}`; an unset variable is empty.
    fn expand(&self, option: &str, value: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut rest = value;
        while let Some(start) = rest.find('$') {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            if let Some(keyword) = ["$pagesize", "$mb_memory", "$ncpus"]
                .iter()
                .find(|keyword| rest.starts_with(**keyword))
            {
                return Err(self.error(
                    Some(option),
                    &format!("`{keyword}` is the host's, which is simulated here"),
                ));
            }
            let Some(name) = rest.strip_prefix("${") else {
                out.push('$');
                rest = &rest[1..];
                continue;
            };
            let (name, after) = name
                .split_once('}')
                .ok_or_else(|| self.error(Some(option), &format!("`{rest}` has no `}}`")))?;
            out.push_str(&(self.env)(name).unwrap_or_default());
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn section(&mut self, raw: Raw) -> Result<(), Error> {
        // fio compares six letters only: [global-disk] is a [global] section too.
        let global = raw.name.starts_with("global");
        let mut options = self.defaults.clone();
        // fio reads kb_base first, wherever in the section it stands.
        for option in raw.options.iter().filter(|option| option.name == "kb_base") {
            self.line = option.line;
            options.kb_base = options::kb_base(option.value.as_deref().unwrap_or_default())
                .map_err(|what| self.error(Some("kb_base"), &what))?;
        }
        let mut given = Vec::new();
        for option in &raw.options {
            self.line = option.line;
            self.option(&mut options, option)?;
            given.push((
                option.name.clone(),
                option.value.clone().unwrap_or_default(),
            ));
        }
        if global {
            self.defaults = options;
            self.file.global.extend(given);
            return Ok(());
        }
        self.line = raw.line;
        self.check(&raw.name, &options)?;
        let name = options.name.clone().unwrap_or(raw.name);
        self.file.sections.push(Section {
            name,
            line: raw.line,
            options,
            given,
        });
        Ok(())
    }

    fn option(&mut self, options: &mut JobOptions, raw: &RawOption) -> Result<(), Error> {
        let Some(opt) = options::find(&raw.name) else {
            let hint = match options::nearest(&raw.name) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            return Err(self.error(Some(&raw.name), &format!("fio has no such option{hint}")));
        };
        match opt.support {
            Support::Set(setter) => {
                let text = raw.value.as_deref();
                setter(
                    options,
                    Arg {
                        text,
                        kb_base: options.kb_base,
                    },
                )
                .map_err(|what| self.error(Some(&raw.name), &what))?;
                options.lines.insert(opt.name, raw.line);
            }
            Support::Ignored => {
                if self
                    .file
                    .ignored
                    .iter()
                    .all(|ignored| ignored.option != opt.name)
                {
                    self.file.ignored.push(Ignored {
                        option: opt.name,
                        line: raw.line,
                    });
                }
            }
            Support::Only(values) => {
                if !raw
                    .value
                    .as_deref()
                    .is_some_and(|value| values.contains(&value))
                {
                    let what = format!(
                        "not supported yet, but for {}={}",
                        opt.name,
                        values.join(" or ")
                    );
                    return Err(self.error(Some(&raw.name), &what));
                }
            }
            Support::Refused => {
                return Err(self.error(
                    Some(&raw.name),
                    "an option of fio's that is not supported yet",
                ));
            }
        }
        Ok(())
    }

    /// What only shows once a section is whole.
    fn check(&mut self, name: &str, options: &JobOptions) -> Result<(), Error> {
        let at = |option: &'static str, what: String| Error {
            file: self.file.path.clone(),
            line: options.lines.get(option).copied().unwrap_or(self.line),
            option: Some(option.into()),
            what,
        };
        if options.verify == Verify::Pattern && options.verify_pattern.is_empty() {
            return Err(at("verify", "`pattern` needs a verify_pattern".into()));
        }
        if options.sync_engine && options.iodepth > 1 {
            self.file.notes.push(format!(
                "{name}: iodepth={} with ioengine={}, a synchronous engine: the depth is 1",
                options.iodepth, options.ioengine
            ));
        }
        if options.time_based && options.runtime == 0 {
            self.file.notes.push(format!(
                "{name}: time_based has no effect without a runtime"
            ));
        }
        if options.block_align.iter().any(Option::is_some) && options.random && !options.norandommap
        {
            self.file.notes.push(format!(
                "{name}: blockalign turns the random map off, as fio does"
            ));
        }
        Ok(())
    }
}
