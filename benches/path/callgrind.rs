//! Profiles from callgrind: instructions, allocations and copies of a run, by part.
//!
//! The format is described in the Callgrind manual ("Callgrind Format Specification").
//! Every cost line belongs to a source file (`fl=`, `fi=`, `fe=`), even where the code
//! is inlined. Parts are therefore told apart by file and not by function, since the
//! compiler decides what it inlines into a function. The cost of code that belongs to
//! no part (the standard library, libc) goes to the last code of a part before it in
//! the function's list, or to the first after it. If the function has no code of a
//! part, the cost is divided among its callers, in proportion to what their calls cost.

use std::collections::HashMap;

use super::parts::{FileRole, Part, role};

/// Steps from caller to caller before the cost of code without a part goes to the rest.
/// Longer chains are recursion.
const CALLERS_MAX: usize = 32;

/// Cost of code. The difference of two runs can be negative where the code did little.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Cost {
    pub(crate) instructions: f64,
    /// Calls of an allocator, whether Rust's or libc's.
    pub(crate) allocations: f64,
    /// Instructions that `memcpy` and similar functions spend for this code.
    pub(crate) copies: f64,
}

impl Cost {
    /// Adds another cost, times a factor.
    pub(crate) fn add(&mut self, other: &Self, factor: f64) {
        self.instructions += other.instructions * factor;
        self.allocations += other.allocations * factor;
        self.copies += other.copies * factor;
    }

    pub(crate) fn divide(&mut self, divisor: f64) {
        self.instructions /= divisor;
        self.allocations /= divisor;
        self.copies /= divisor;
    }
}

/// Code that has a cost, or that makes calls.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Code {
    Part(Part),
    /// Function without code of any part.
    Function(String),
}

/// Profile of a run of the program.
#[derive(Default)]
pub(crate) struct Profile {
    costs: HashMap<Code, Cost>,
    /// Inclusive cost of the calls to each function, by caller.
    callers: HashMap<String, HashMap<Code, f64>>,
}

impl Profile {
    /// Parses the output file of callgrind.
    pub(crate) fn parse(text: &str) -> Self {
        let mut reader = Reader::default();
        for line in text.lines() {
            reader.line(line);
        }
        reader.end_function();
        reader.profile
    }

    /// Subtracts a shorter run of the program, so that start and stop do not count.
    pub(crate) fn less(mut self, shorter: &Self) -> Self {
        for (code, cost) in &shorter.costs {
            self.costs.entry(code.clone()).or_default().add(cost, -1.0);
        }
        for (callee, callers) in &shorter.callers {
            let own = self.callers.entry(callee.clone()).or_default();
            for (caller, cost) in callers {
                *own.entry(caller.clone()).or_default() -= cost;
            }
        }
        self
    }

    /// Returns the cost of each part.
    pub(crate) fn parts(mut self) -> HashMap<Part, Cost> {
        let mut parts = HashMap::new();
        for _ in 0..CALLERS_MAX {
            let mut passed_on = HashMap::new();
            for (code, cost) in self.costs.drain() {
                match code {
                    Code::Part(part) => {
                        let total: &mut Cost = parts.entry(part).or_default();
                        total.add(&cost, 1.0);
                    }
                    Code::Function(name) => {
                        let calls = self.callers.get(&name);
                        pass_on(&name, &cost, calls, &mut passed_on);
                    }
                }
            }
            self.costs = passed_on;
        }
        for (_, cost) in self.costs {
            parts.entry(Part::Rest).or_default().add(&cost, 1.0);
        }
        parts
    }
}

/// Divides the cost of a function among its callers.
fn pass_on(
    name: &str,
    cost: &Cost,
    calls: Option<&HashMap<Code, f64>>,
    costs: &mut HashMap<Code, Cost>,
) {
    let of_others =
        |(code, calls): &(&Code, &f64)| **calls > 0.0 && **code != Code::Function(name.to_owned());
    let callers: Vec<_> = calls.into_iter().flatten().filter(of_others).collect();
    let all: f64 = callers.iter().map(|(_, calls)| **calls).sum();
    for (caller, calls) in &callers {
        let share = **calls / all;
        costs.entry((*caller).clone()).or_default().add(cost, share);
    }
    if callers.is_empty() {
        let rest = costs.entry(Code::Part(Part::Rest)).or_default();
        rest.add(cost, 1.0);
    }
}

/// A line of a function: its own cost, or a call.
struct Entry {
    role: FileRole,
    cost: Cost,
    call: Option<Call>,
}

struct Call {
    callee: String,
    inclusive: f64,
}

/// Parser that reads a file line by line.
#[derive(Default)]
struct Reader {
    profile: Profile,
    files: HashMap<String, FileRole>,
    functions: HashMap<String, String>,
    function: String,
    function_file: Option<FileRole>,
    file: Option<FileRole>,
    callee: String,
    /// Number of calls whose cost the next line states.
    calls: Option<f64>,
    entries: Vec<Entry>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        match line.as_bytes().first() {
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => self.cost(line),
            Some(_) => {
                if let Some((key, value)) = line.split_once('=') {
                    self.key(key, value);
                }
            }
            None => {}
        }
    }

    fn key(&mut self, key: &str, value: &str) {
        match key {
            "fl" => {
                // A file starts a new function, whose line follows.
                self.end_function();
                self.function_file = Some(self.file_role(value));
                self.file = self.function_file;
            }
            "fi" | "fe" => self.file = Some(self.file_role(value)),
            "fn" => {
                self.end_function();
                self.file = self.function_file;
                self.function = self.function_name(value);
            }
            // Defines a name that later lines may refer to.
            "cfi" | "cfl" => {
                self.file_role(value);
            }
            "cfn" => self.callee = self.function_name(value),
            "calls" => self.calls = value.split(' ').next().and_then(|count| count.parse().ok()),
            _ => {}
        }
    }

    /// Reads `POSITION COST`. A cost of 0 is omitted.
    fn cost(&mut self, line: &str) {
        let cost = line.split(' ').nth(1).map_or(0.0, number);
        let role = self.file.unwrap_or(FileRole::Neutral);
        let Some(count) = self.calls.take() else {
            let cost = Cost {
                instructions: cost,
                ..Cost::default()
            };
            self.entries.push(Entry {
                role,
                cost,
                call: None,
            });
            return;
        };
        let allocates = is_allocator(&self.callee) && !is_allocator(&self.function);
        let copies = is_copier(&self.callee) && !is_copier(&self.function);
        self.entries.push(Entry {
            role,
            cost: Cost {
                instructions: 0.0,
                allocations: if allocates { count } else { 0.0 },
                copies: if copies { cost } else { 0.0 },
            },
            call: Some(Call {
                callee: self.callee.clone(),
                inclusive: cost,
            }),
        });
    }

    /// Adds up the lines of the function that ends here.
    fn end_function(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let service = entries.iter().find_map(|entry| match entry.role {
            FileRole::Service(part) => Some(Code::Part(part)),
            FileRole::Owner(_) | FileRole::Neutral => None,
        });
        let function = Code::Function(self.function.clone());
        let mut beside = entries.iter().find_map(owner).unwrap_or(function.clone());
        for entry in entries {
            if let Some(code) = owner(&entry) {
                beside = code;
            }
            let code = match (entry.role, &service) {
                _ if entry.call.is_some() => beside.clone(),
                (FileRole::Service(part), _) => Code::Part(part),
                // In a function whose only part is a service, other code belongs to the
                // service too: `RawVec::grow` is allocation.
                (_, Some(service)) if beside == function => service.clone(),
                (FileRole::Owner(_) | FileRole::Neutral, _) => beside.clone(),
            };
            let costs = self.profile.costs.entry(code).or_default();
            costs.add(&entry.cost, 1.0);
            if let Some(call) = entry.call {
                let callers = self.profile.callers.entry(call.callee).or_default();
                *callers.entry(beside.clone()).or_default() += call.inclusive;
            }
        }
    }

    /// Returns the role of a file, given as `(id) path` or `(id)`.
    fn file_role(&mut self, value: &str) -> FileRole {
        let (id, name) = compressed(value);
        if let Some(path) = name {
            self.files.insert(id.to_owned(), role(path));
        }
        *self.files.get(id).unwrap_or(&FileRole::Neutral)
    }

    /// Returns the name of a function, given as `(id) name` or `(id)`.
    fn function_name(&mut self, value: &str) -> String {
        let (id, name) = compressed(value);
        if let Some(name) = name {
            self.functions.insert(id.to_owned(), name.to_owned());
        }
        self.functions.get(id).cloned().unwrap_or_default()
    }
}

fn owner(entry: &Entry) -> Option<Code> {
    match entry.role {
        FileRole::Owner(part) => Some(Code::Part(part)),
        FileRole::Service(_) | FileRole::Neutral => None,
    }
}

/// Splits `(id) name` into its two halves. A name without an ID stands for both.
fn compressed(value: &str) -> (&str, Option<&str>) {
    let end = value
        .find(')')
        .filter(|_| value.starts_with('('))
        .map_or(value.len(), |at| at + 1);
    let (id, name) = value.split_at(end);
    let name = name.trim_start();
    if end == value.len() && !value.starts_with('(') {
        return (id, Some(id));
    }
    (id, Some(name).filter(|name| !name.is_empty()))
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_default()
}

/// Reports whether a function allocates memory: those of libc, and the entry points of
/// jemalloc.
fn is_allocator(function: &str) -> bool {
    let name = function.strip_prefix("_rjem_").unwrap_or(function);
    [
        "malloc",
        "calloc",
        "realloc",
        "mallocx",
        "rallocx",
        "posix_memalign",
    ]
    .contains(&name)
}

fn is_copier(function: &str) -> bool {
    ["memcpy", "memmove", "memset"]
        .iter()
        .any(|name| function.contains(name))
}
