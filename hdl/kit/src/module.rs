//! Finished modules, black boxes, instances.
use crate::build::{Builder, Inst, Kind, construct, cur, fail, fail_at};
use crate::bundle::{At, Bundle, Dir, Role, make_ports};
use crate::error::{Error, ErrorKind, Loc, catch, place};
use crate::{analyze, emit};
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

/// A port of a finished module. `clk` and `rst` are implicit and not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Flattened name.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// Direction.
    pub dir: Dir,
    /// Doc comment of the field.
    pub doc: String,
    /// Part in a handshake.
    pub role: Role,
}

#[derive(Debug)]
struct Inner {
    name: String,
    doc: String,
    ports: Vec<Port>,
    verilog: Option<String>,
    children: Vec<Module>,
    paths: Vec<Vec<usize>>,
}

/// A finished module: name, ports, Verilog text and children. Cheap to clone, `Send`.
#[derive(Clone, Debug)]
pub struct Module(Arc<Inner>);

impl Module {
    /// Name; also the file's, with `.v`.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// What it is.
    pub fn doc(&self) -> &str {
        &self.0.doc
    }
    /// Ports in order, without `clk` and `rst`.
    pub fn ports(&self) -> &[Port] {
        &self.0.ports
    }
    /// The text of its file, `<name>.v`; empty for a black box.
    pub fn verilog(&self) -> &str {
        self.0.verilog.as_deref().unwrap_or("")
    }
    /// Described ports without a body.
    pub fn is_black_box(&self) -> bool {
        self.0.verilog.is_none()
    }
    /// Modules instantiated directly, each once.
    pub fn children(&self) -> &[Module] {
        &self.0.children
    }
    /// For each output port (by number in [`Module::ports`]): the input ports it depends on within the cycle.
    pub fn comb_paths(&self) -> &[Vec<usize>] {
        &self.0.paths
    }

    /// This module and everything under it, children first, each once.
    pub fn all(&self) -> Vec<Module> {
        fn visit(m: &Module, seen: &mut BTreeMap<String, ()>, out: &mut Vec<Module>) {
            if seen.insert(m.name().into(), ()).is_none() {
                m.children().iter().for_each(|c| visit(c, seen, out));
                out.push(m.clone());
            }
        }
        let mut out = vec![];
        visit(self, &mut BTreeMap::new(), &mut out);
        out
    }

    /// `(file name, text)` of this module and everything under it, children first, without black boxes.
    pub fn files(&self) -> Vec<(String, String)> {
        self.all()
            .iter()
            .filter(|m| !m.is_black_box())
            .map(|m| (format!("{}.v", m.name()), m.verilog().to_string()))
            .collect()
    }

    fn same_as(&self, other: &Module) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.ports == other.0.ports && self.0.verilog == other.0.verilog)
    }
}

/// Builds a module: `name`, `doc` (its header comment), the parameters of its ports, and a body that reads inputs and sets outputs.
///
/// Panics with the place in the generator when the design is wrong; [`try_module`] returns the error instead.
#[track_caller]
pub fn module<P: Bundle>(
    name: impl AsRef<str>,
    doc: &str,
    params: &P::Params,
    body: impl FnOnce(P),
) -> Module {
    module_at(Location::caller(), name.as_ref(), doc, params, body)
}

#[track_caller]
fn module_at<P: Bundle>(
    loc: Loc,
    name: &str,
    doc: &str,
    params: &P::Params,
    body: impl FnOnce(P),
) -> Module {
    if !crate::name::is_identifier(name) || crate::name::is_reserved(name) {
        fail_at(
            loc,
            ErrorKind::Name,
            format!("module name `{name}` is a reserved word or no Verilog identifier"),
        );
    }
    let build = || {
        let ports: P = make_ports(params, loc);
        body(ports);
    };
    let finished = construct(name, doc, loc, build, |b| {
        let (errors, facts) = analyze::analyze(b);
        match errors.into_iter().reduce(|mut all, e| {
            all.message = format!("{}\n  {}: {}", all.message, e.at, e.message);
            all
        }) {
            Some(error) => Err(error),
            None => Ok(Module(Arc::new(Inner {
                name: b.name.clone(),
                doc: b.doc.clone(),
                ports: b.ports.iter().map(|p| p.0.clone()).collect(),
                children: children(b)?,
                verilog: Some(emit::emit(b, &facts)),
                paths: facts.paths,
            }))),
        }
    });
    match finished {
        Ok(m) => m,
        Err(e) => crate::error::raise(e),
    }
}

/// As [`module`], with a construction error as a value.
#[track_caller]
pub fn try_module<P: Bundle>(
    name: impl AsRef<str>,
    doc: &str,
    params: &P::Params,
    body: impl FnOnce(P),
) -> Result<Module, Error> {
    let loc = Location::caller();
    catch(|| module_at(loc, name.as_ref(), doc, params, body))
}

/// A module whose body is elsewhere. `paths` lists (input port, output port) pairs that are connected within a cycle.
#[track_caller]
pub fn black_box<P: Bundle>(
    name: &str,
    doc: &str,
    params: &P::Params,
    paths: &[(&str, &str)],
) -> Module {
    let loc = Location::caller();
    construct(
        name,
        doc,
        loc,
        || drop(make_ports::<P>(params, loc)),
        |b| {
            let ports: Vec<Port> = b.ports.iter().map(|p| p.0.clone()).collect();
            let number = |n: &str| ports.iter().position(|p| p.name == n);
            let mut comb = vec![vec![]; ports.len()];
            for (from, to) in paths {
                match (number(from), number(to)) {
                    (Some(f), Some(t)) => comb[t].push(f),
                    _ => return Err(format!("black box {name} has no port {from} or {to}")),
                }
            }
            Ok(Module(Arc::new(Inner {
                name: name.into(),
                doc: doc.into(),
                ports,
                verilog: None,
                children: vec![],
                paths: comb,
            })))
        },
    )
    .unwrap_or_else(|message| fail(ErrorKind::Ports, message))
}

/// Distinct children; one name with two contents anywhere below is an error.
fn children(b: &Builder) -> Result<Vec<Module>, Error> {
    let mut direct: Vec<Module> = vec![];
    let mut known: BTreeMap<String, Module> = BTreeMap::new();
    for inst in &b.insts {
        for m in inst.module.all() {
            let differs = known.get(m.name()).is_some_and(|k| !k.same_as(&m)) || m.name() == b.name;
            if differs {
                let message = format!(
                    "two different modules are called {}: put what they differ in into the name",
                    m.name()
                );
                return Err(Error {
                    kind: ErrorKind::Name,
                    module: b.name.clone(),
                    at: place(b.loc),
                    message,
                });
            }
            known.insert(m.name().into(), m);
        }
        if !direct.iter().any(|m| m.name() == inst.module.name()) {
            direct.push(inst.module.clone());
        }
    }
    Ok(direct)
}

/// Puts `module` into the module under construction, with `clk` and `rst`. The returned struct mirrors its ports: set the inputs,
/// read the outputs.
#[track_caller]
pub fn instance<P: Bundle>(name: &str, module: &Module, params: &P::Params) -> P {
    let loc = Location::caller();
    let (name, index, comment) = cur(|b| {
        let scoped = b.scoped(name);
        (b.names.unique(&scoped), b.insts.len(), b.pending.take())
    });
    cur(|b| {
        b.insts.push(Inst {
            module: module.clone(),
            name: name.clone(),
            nets: vec![],
            comment,
        })
    });
    let mut number = 0;
    let mirror = P::make(params, &At::root(), &mut |at, w, _| {
        let port = module
            .ports()
            .get(number)
            .filter(|p| p.name == at.name() && p.width == w && Some(p.dir) == at.dir());
        let Some(port) = port else {
            let have = module.ports().get(number).map_or("nothing".into(), |p| {
                format!("{} of {} bits", p.name, p.width)
            });
            fail_at(
                loc,
                ErrorKind::Ports,
                format!(
                    "instance {name}: port {number} is {} of {w} bits here, but {have} in module {}",
                    at.name(),
                    module.name()
                ),
            )
        };
        number += 1;
        cur(|b| {
            let kind = if port.dir == Dir::In {
                Kind::InstIn(index)
            } else {
                Kind::InstOut(index, number - 1)
            };
            let s = b.decl(kind, w, loc);
            let net = b.names.unique(&format!("{name}_{}", port.name));
            b.nodes[s.id as usize].name = Some(net);
            b.insts[index].nets.push(s.id);
            s
        })
    });
    if number != module.ports().len() {
        fail(
            ErrorKind::Ports,
            format!(
                "instance {name}: {number} ports here, {} in module {}",
                module.ports().len(),
                module.name()
            ),
        );
    }
    mirror
}
