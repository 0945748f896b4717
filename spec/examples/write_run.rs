// Write a run directory (spec/run-directory.md) from Rust, without any crate. Copy the writer into your trainer.
//
//   rustc --edition 2021 -O -o write_run write_run.rs
//   write_run DIRECTORY STEPS RATE
//
// The trainer below it shows how it is used: it fits a line to points, and every step of it is recorded.

use std::fs::{create_dir_all, rename, write, File, OpenOptions};
use std::io::{Result, Write};
use std::process::{exit, id, Command};
use std::thread::panicking;

// --- The writer ------------------------------------------------------------------------------------------------------
type Cells = Vec<(&'static str, String)>; // names, and values as JSON
fn clock(which: i32) -> f64 { // 0 is the time of day, 1 a clock that nobody sets: of libc, on Linux of 64 bits
    extern "C" { fn clock_gettime(which: i32, into: *mut [i64; 2]) -> i32; }
    let now = unsafe { let mut now = [0, 0]; clock_gettime(which, &mut now); now };
    now[0] as f64 + now[1] as f64 * 1e-9
}
fn asked(program: &str, words: &[&str]) -> String { // what it prints, without the end of its line
    let done = Command::new(program).args(words).output();
    done.map_or(String::new(), |done| String::from_utf8_lossy(&done.stdout).trim_end().into())
}
fn number(value: f64) -> String { format!("{value:?}").replace("inf", "Infinity") } // it comes back the same; or NaN
fn text(words: &str) -> String {
    let plain = |c: char| if c < ' ' || "\"\\".contains(c) { format!("\\u{:04x}", c as u32) } else { c.into() };
    format!("\"{}\"", words.chars().map(plain).collect::<String>())
}
fn object(cells: &Cells) -> String {
    format!("{{{}}}", cells.iter().map(|(name, value)| format!("{}:{value}", text(name))).collect::<Vec<_>>().join(","))
}
struct Rows { file: File, broken: bool, whole: u64, waiting: String }
impl Rows { // a line each, in one write; what the disk does not take waits, and half a line is taken back
    fn new(path: String) -> Result<Rows> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        file.map(|file| Rows { file, broken: false, whole: 0, waiting: String::new() })
    }
    fn append(&mut self, row: &Cells) {
        if self.waiting.len() < 4_000_000 { self.waiting += &(object(row) + "\n"); } // else lost: `end` counts one more
        let wrote = if self.broken { 0 } else { self.file.write(self.waiting.as_bytes()).unwrap_or(0) };
        if wrote == self.waiting.len() { self.whole += wrote as u64; self.waiting.clear(); }
        else if wrote > 0 { self.broken = self.file.set_len(self.whole).is_err(); }
    }
}
struct Run { steps: Rows, events: Rows, taken: u32, mark: f64 }
impl Run { // an error where the folder holds a run already or takes none, and never after that
    fn new(folder: &str, mut facts: Cells) -> Result<Run> {
        create_dir_all(folder)?;
        let at = |name: &str| format!("{folder}/{name}");
        let (steps, events) = (Rows::new(at("steps.jsonl"))?, Rows::new(at("events.jsonl"))?);
        let started = text(&asked("date", &["-u", "+%Y-%m-%dT%H:%M:%S.%3NZ"]));
        facts.extend([("schema", text("weighbridge.run/v0")), ("started", started), ("pid", id().to_string())]);
        write(at(".run.json"), object(&facts) + "\n")?;
        rename(at(".run.json"), at("run.json"))?; // whole, or not there
        Ok(Run { steps, events, taken: 0, mark: clock(1) })
    }
    fn step(&mut self, row: Cells) {
        let now = clock(1);
        let own = vec![("step", self.taken.to_string()), ("wall_ms", number(((now - self.mark) * 1e9).round() / 1e6))];
        self.steps.append(&[own, row, vec![("time", number(clock(0))), ("monotonic_s", number(now))]].concat());
        (self.taken, self.mark) = (self.taken + 1, clock(1));
    }
    fn event(&mut self, name: &str, fields: Cells) {
        let first = vec![("event", text(name)), ("step", self.taken.to_string())];
        self.events.append(&[first, fields].concat());
    }
}
impl Drop for Run {
    fn drop(&mut self) {
        let by = text(if panicking() { "panic" } else { "" });
        self.event("end", vec![("steps", self.taken.to_string()), ("by", by)]);
    }
}

// --- A trainer -------------------------------------------------------------------------------------------------------
const CORPUS: usize = 320;
const BATCH: usize = 8;

fn train(folder: &str, steps: usize, rate: f64) -> Result<()> {
    let commit = asked("git", &["rev-parse", "HEAD"]);
    let dirty = !asked("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let data = vec![("seq_len", "1".into()), ("batch_size", BATCH.to_string()), ("corpus_tokens", CORPUS.to_string())];
    let mut run = Run::new(folder, vec![
        ("requested_device", text("cpu")), ("resolved_device", text("cpu")), ("requested_steps", steps.to_string()),
        ("host", text(&std::env::var("WEIGHBRIDGE_HOST").unwrap_or_default())), ("commit", text(&commit)),
        ("dirty", if commit.is_empty() { "null".into() } else { dirty.to_string() }),
        ("model", object(&vec![("parameters", "2".into())])), ("data", object(&data)),
    ])?;
    let (mut slope, mut offset, mut at, mut wraps) = (0., 0., 0, 0);
    for step in 0..steps {
        if at == CORPUS {
            wraps += 1;
            run.event("wrap", vec![("wraps", wraps.to_string()), ("corpus_position", at.to_string())]);
            at = 0;
        }
        let (mut loss, mut by_slope, mut by_offset) = (0., 0., 0.);
        for row in at..at + BATCH {
            let x = (row * 37 % CORPUS) as f64 / CORPUS as f64;
            let noise = (row * 101 % CORPUS) as f64 / CORPUS as f64 - 0.5;
            let error: f64 = slope * x + offset - (2. * x + 1. + noise / 5.);
            loss += error * error / BATCH as f64;
            by_slope += 2. * error * x / BATCH as f64;
            by_offset += 2. * error / BATCH as f64;
        }
        slope -= rate * by_slope;
        offset -= rate * by_offset;
        at += BATCH;
        let norm = (by_slope * by_slope + by_offset * by_offset).sqrt();
        println!("{step} {loss:.17e} {norm:.17e}");
        run.step(vec![
            ("loss", number(loss)), ("grad_norm", number(norm)), ("lr", number(rate)), ("tokens", BATCH.to_string()),
            ("corpus_position", at.to_string()), ("wraps", wraps.to_string()),
        ]);
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let given = words.get(2).and_then(|word| word.parse().ok()).zip(words.get(3).and_then(|word| word.parse().ok()));
    let done = given.map(|(steps, rate)| train(&words[1], steps, rate));
    match done {
        Some(Ok(())) => {}
        Some(Err(problem)) => { eprintln!("{}: {problem}", words[1]); exit(1) }
        None => { eprintln!("write_run DIRECTORY STEPS RATE"); exit(1) }
    }
}
