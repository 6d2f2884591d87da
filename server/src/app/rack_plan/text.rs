//! The rack plan as a file: comma-separated values with a first line that names the columns (RFC 4180).
//!
//! People write it in a spreadsheet. So a mistake is told by line, column and what was expected there, and all mistakes
//! are told at once; what a spreadsheet makes of a file (a byte order mark, CRLF, blank cells) is no mistake.

use std::fmt;

use lifecycle::plan::{Column, ImportLine, LINES_MAX, PlanLine, PlanProblem, UNIT_MAX};

use crate::app::nodes::{hostname_check, label_check, mac_parse};
use crate::app::{AppError, enrol};

/// Longest cell, in bytes.
const CELL_BYTES_MAX: usize = 200;
/// Most problems that are told at once.
const PROBLEMS_MAX: usize = 50;
/// Columns that a file without a switch port has.
const COLUMNS_USUAL: usize = 7;

/// A problem with the number of its column.
#[derive(Debug)]
pub struct Placed {
    /// The column's number in the file, from 1.
    pub number: Option<usize>,
    /// The problem.
    pub problem: PlanProblem,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanProblem { line, column, problem } = &self.problem;
        write!(f, "line {line}")?;
        match (self.number, column) {
            (Some(number), Some(column)) => write!(f, ", column {number} ({})", column.as_str())?,
            (Some(number), None) => write!(f, ", column {number}")?,
            (None, _) => {}
        }
        write!(f, ": {problem}")
    }
}

/// A file that was read.
#[derive(Debug)]
pub struct PlanFile {
    /// Its columns, in its order.
    pub columns: Vec<Column>,
    /// Its lines.
    pub lines: Vec<ImportLine>,
}

/// Reads a file.
///
/// # Errors
/// Everything that is wrong, at most 50 problems, in the order of the lines.
pub fn parse(text: &str) -> Result<PlanFile, Vec<Placed>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let mut records = reader.records();
    let whole = |problem: &str| vec![placed(1, None, None, problem.to_owned())];
    let Some(Ok(heading)) = records.next() else {
        return Err(whole(&format!(
            "is no heading; expected the columns {}",
            column_names()
        )));
    };
    let columns = heading_columns(&heading).map_err(|problem| vec![problem])?;
    let mut lines = Vec::new();
    let mut problems = Vec::new();
    let mut at = LineCounter::new(text);
    for record in records {
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = at.line(error.position());
                problems.push(placed(line, None, None, "is no comma-separated text".to_owned()));
                break;
            }
        };
        let line = at.line(record.position());
        if record.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        if record.len() != columns.len() {
            let problem = format!(
                "has {} cells; expected {}, as in the first line",
                record.len(),
                columns.len()
            );
            problems.push(placed(line, None, None, problem));
            continue;
        }
        let mut plan = PlanLine::default();
        for (at, (cell, column)) in record.iter().zip(&columns).enumerate() {
            if let Err(problem) = cell_read(&mut plan, *column, cell.trim()) {
                problems.push(placed(line, Some(at + 1), Some(*column), problem));
            }
        }
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        lines.push(ImportLine { line, plan });
        if lines.len() > LINES_MAX {
            let problem = format!("is more than {LINES_MAX} lines; expected several files");
            problems.push(placed(line as u64, None, None, problem));
            break;
        }
    }
    match problems.is_empty() {
        true => Ok(PlanFile { columns, lines }),
        false => Err(problems),
    }
}

/// Counts lines as editors do. The parser's own count begins a record at the blank lines before it.
struct LineCounter<'a> {
    text: &'a [u8],
    byte: usize,
    line: u64,
}

impl<'a> LineCounter<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            byte: 0,
            line: 1,
        }
    }

    /// The line of the record at a position; positions only grow.
    fn line(&mut self, position: Option<&csv::Position>) -> u64 {
        let wanted = position.map_or(0, csv::Position::byte);
        let is_blank = |byte: u8| matches!(byte, b'\n' | b'\r');
        while let Some(byte) = self.text.get(self.byte)
            && ((self.byte as u64) < wanted || is_blank(*byte))
        {
            self.line += u64::from(*byte == b'\n');
            self.byte += 1;
        }
        self.line
    }
}

fn placed(line: u64, number: Option<usize>, column: Option<Column>, problem: String) -> Placed {
    let line = usize::try_from(line).unwrap_or(usize::MAX);
    Placed {
        number,
        problem: PlanProblem { line, column, problem },
    }
}

/// Gives the problems of an import the numbers of their columns in this file.
#[must_use]
pub fn place(columns: &[Column], problems: Vec<PlanProblem>) -> Vec<Placed> {
    let number = |column| columns.iter().position(|other| Some(*other) == column).map(|at| at + 1);
    let placed = problems.into_iter().map(|problem| Placed {
        number: number(problem.column),
        problem,
    });
    placed.collect()
}

fn column_names() -> String {
    Column::ALL.map(Column::as_str).join(", ")
}

fn heading_columns(heading: &csv::StringRecord) -> Result<Vec<Column>, Placed> {
    let mut columns = Vec::new();
    for (at, name) in heading.iter().enumerate() {
        let wrong = |problem: String| placed(1, Some(at + 1), None, problem);
        let Some(column) = Column::parse(name.trim()) else {
            let separator = [';', '\t'].into_iter().find(|c| name.contains(*c));
            return Err(wrong(match separator {
                Some(separator) => format!("the columns are separated by {separator:?}; expected commas"),
                None => format!("{:?} is no column; expected {}", shown(name), column_names()),
            }));
        };
        if columns.contains(&column) {
            return Err(wrong(format!(
                "{:?} comes twice; expected each column once",
                column.as_str()
            )));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

fn cell_read(plan: &mut PlanLine, column: Column, cell: &str) -> Result<(), String> {
    if cell.is_empty() {
        return Ok(());
    }
    if cell.len() > CELL_BYTES_MAX {
        return Err(format!("{} bytes; expected at most {CELL_BYTES_MAX}", cell.len()));
    }
    let invalid = |error: AppError| error.to_string();
    let text = cell.to_owned();
    match column {
        Column::Rack => {
            label_check("rack", cell).map_err(invalid)?;
            plan.rack = Some(text);
        }
        Column::Unit => {
            let unit = cell.parse().ok().filter(|unit| (1..=UNIT_MAX).contains(unit));
            let unit =
                unit.ok_or_else(|| format!("{:?} is no unit; expected a number from 1 to {UNIT_MAX}", shown(cell)))?;
            plan.unit = Some(unit);
        }
        Column::Serial => {
            if enrol::is_filler(cell) {
                return Err(format!(
                    "{cell:?} is what makers of firmware leave in; expected a serial number, or nothing"
                ));
            }
            if cell.len() > 64 || !cell.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
                return Err(format!(
                    "{:?} is no serial number; expected 1 to 64 visible ASCII characters",
                    shown(cell)
                ));
            }
            plan.serial = Some(text);
        }
        Column::Mac => {
            let mac = mac_parse(cell).map_err(|error| error.to_string())?;
            plan.mac = Some(mac.to_string());
        }
        Column::BmcAddress => {
            if !is_host(cell) {
                return Err(format!(
                    "{:?} is no address; expected IPv4, IPv6 or a host name",
                    shown(cell)
                ));
            }
            plan.bmc_address = Some(text.to_ascii_lowercase());
        }
        Column::Name => {
            hostname_check(cell).map_err(invalid)?;
            plan.name = Some(text);
        }
        Column::Group => {
            label_check("group", cell).map_err(invalid)?;
            plan.group = Some(text);
        }
        Column::SwitchPort => {
            let parts = cell
                .split_once(':')
                .filter(|(switch, port)| !switch.is_empty() && !port.is_empty());
            if parts.is_none() || !cell.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
                return Err(format!(
                    "{:?} is no switch port; expected SWITCH:PORT, such as leaf1:Ethernet1/7",
                    shown(cell)
                ));
            }
            plan.switch_port = Some(text);
        }
    }
    Ok(())
}

/// An address, or a name of labels (RFC 1123).
fn is_host(text: &str) -> bool {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // Four numbers that are no address are a slip, and no name.
    text.split('.').all(is_label) && text.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Writes a plan as a file that [`parse`] reads. The column `switch_port` is there when a line has one.
///
/// # Errors
/// None in practice: what is written to memory.
pub fn write(lines: &[PlanLine]) -> Result<String, csv::Error> {
    let has_ports = lines.iter().any(|line| line.switch_port.is_some());
    let columns = if has_ports {
        &Column::ALL[..]
    } else {
        &Column::ALL[..COLUMNS_USUAL]
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| column.as_str()))?;
    for line in lines {
        writer.write_record(columns.iter().map(|column| line.get(*column).unwrap_or_default()))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "rack,unit,serial,mac,bmc_address,name,group\n";

    fn problems(text: &str) -> Vec<String> {
        parse(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = format!("{HEADING}r1,12,S1,3c:ec:ef:00:00:01,10.9.0.1,gpu-1,gpu\nr1,10,\"S, 2\",,,,\nr2,3,,,,,\n");
        let file = parse(&text).unwrap();
        let lines: Vec<PlanLine> = file.lines.into_iter().map(|line| line.plan).collect();
        assert_eq!(lines[1].serial.as_deref(), Some("S, 2"));
        assert_eq!(write(&lines).unwrap(), text);
        let spreadsheet = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let lines: Vec<PlanLine> = parse(&spreadsheet)
            .unwrap()
            .lines
            .into_iter()
            .map(|line| line.plan)
            .collect();
        assert_eq!(write(&lines).unwrap(), text);
    }

    #[test]
    fn a_mistake_is_told_by_line_column_and_what_was_expected() {
        for (cells, expected) in [
            (
                "r 1,1,S,,,,",
                "line 2, column 1 (rack): rack \"r 1\": expected 1 to 64 letters",
            ),
            (
                "r1,0,S,,,,",
                "line 2, column 2 (unit): \"0\" is no unit; expected a number from 1 to 100",
            ),
            (
                "r1,1,Default string,,,,",
                "line 2, column 3 (serial): \"Default string\" is what makers",
            ),
            ("r1,1,S,3c:ec:ef,,,", "line 2, column 4 (mac): mac: \"3c:ec:ef\" is"),
            ("r1,1,S,ff:ff:ff:ff:ff:ff,,,", "line 2, column 4 (mac): "),
            (
                "r1,1,S,,10.9.0.999,,",
                "line 2, column 5 (bmc_address): \"10.9.0.999\" is no address; expected IPv4",
            ),
            (
                "r1,1,S,,,GPU_1,",
                "line 2, column 6 (name): name: \"GPU_1\" is no hostname",
            ),
            ("r1,1,S,,,,a b", "line 2, column 7 (group): group \"a b\""),
            ("r1,1,S", "line 2: has 3 cells; expected 7"),
        ] {
            let found = problems(&format!("{HEADING}{cells}\n"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(expected), "{found:?} should begin with {expected}");
        }
        let port = problems("mac,switch_port\n3c:ec:ef:00:00:01,leaf1\n");
        assert!(
            port[0].starts_with("line 2, column 2 (switch_port): ") && port[0].contains("SWITCH:PORT"),
            "{port:?}"
        );
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_the_lines_of_the_file() {
        let found = problems(&format!("{HEADING}r1,x,S1,,,,\n\n\"r\n2\",1,S2,,,,\nr1,y,S3,,,,\n"));
        let places: Vec<&str> = found.iter().filter_map(|problem| problem.split(": ").next()).collect();
        assert_eq!(
            places,
            [
                "line 2, column 2 (unit)",
                "line 4, column 1 (rack)",
                "line 6, column 2 (unit)"
            ]
        );
    }

    #[test]
    fn a_heading_that_is_none_says_what_it_should_be() {
        for (text, expected) in [
            ("", "line 1: is no heading; expected the columns rack, unit"),
            (
                "rack;unit;serial\nr1;1;S\n",
                "line 1, column 1: the columns are separated by ';'; expected commas",
            ),
            (
                "rack,slot\n",
                "line 1, column 2: \"slot\" is no column; expected rack, unit, serial",
            ),
            ("rack,rack\n", "line 1, column 2: \"rack\" comes twice"),
        ] {
            let found = problems(text);
            assert!(found[0].starts_with(expected), "{found:?} should begin with {expected}");
        }
    }
}
