//! What an import of the rack plan does to each node, decided from values alone.

use std::collections::{HashMap, HashSet};

use protocol::NodeId;
use serde::{Deserialize, Serialize};

use super::{Column, PlanLine};

/// Most problems that are told at once.
const PROBLEMS_MAX: usize = 50;
/// What tells one node from another, best first: a name outlives a changed mainboard, a place outlives everything.
const KEYS: [Column; 4] = [Column::Name, Column::Mac, Column::Serial, Column::Rack];
/// What may belong to one node only. [`Column::Rack`] stands for rack and unit together.
const UNIQUE: [Column; 6] = [
    Column::Name,
    Column::Mac,
    Column::Serial,
    Column::BmcAddress,
    Column::SwitchPort,
    Column::Rack,
];

/// A node as the plan and the world know it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The node.
    pub node: NodeId,
    /// Whether it is in the plan; if not, `line` holds its name and group alone.
    pub is_planned: bool,
    /// What is planned of it.
    pub line: PlanLine,
    /// MACs it is known by.
    pub macs: Vec<String>,
    /// Serial number it reported.
    pub serial: Option<String>,
    /// Whether its deployer ever sent an inventory.
    pub was_seen: bool,
}

/// A line of a file.
#[derive(Clone, Debug)]
pub struct ImportLine {
    /// Line number in the file, from 1.
    pub line: usize,
    /// Its cells.
    pub plan: PlanLine,
}

/// What a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A node comes into the plan.
    Added,
    /// A planned node changes.
    Changed,
    /// The plan says so already.
    Unchanged,
}

/// One cell that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Change {
    /// The column.
    pub column: Column,
    /// What the plan said.
    pub from: Option<String>,
    /// What it says now.
    pub to: Option<String>,
}

/// What one line of an import does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineOutcome {
    /// Line number in the file.
    pub line: usize,
    /// The node it is about; none: a new one.
    pub node: Option<NodeId>,
    /// What it does.
    pub action: Action,
    /// Cells that change.
    pub changes: Vec<Change>,
    /// The plan of the node afterwards.
    pub plan: PlanLine,
}

/// Why an import cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanProblem {
    /// Line number in the file; 0: the file as a whole.
    pub line: usize,
    /// The column, where one is to blame.
    pub column: Option<Column>,
    /// What was found, and what was expected.
    pub problem: String,
}

/// Says what the lines do to the plan. `columns` are those that the file has: an empty cell of them is "not known any
/// more", except that a node keeps its name and its group; a column that the file lacks stays as it is.
///
/// # Errors
/// Everything that is wrong, up to 50 problems, in the order of the lines.
pub fn import(
    known: &[Planned],
    columns: &[Column],
    lines: &[ImportLine],
) -> Result<Vec<LineOutcome>, Vec<PlanProblem>> {
    let index = Index::new(known);
    let mut problems = Vec::new();
    let mut taken: HashMap<usize, usize> = HashMap::new();
    let mut outcomes = Vec::with_capacity(lines.len());
    for line in lines {
        match outcome(known, &index, columns, line) {
            Err(problem) => problems.push(problem),
            Ok((at, outcome)) => {
                if let Some(first) = at.and_then(|at| taken.insert(at, line.line)) {
                    problems.push(PlanProblem {
                        line: line.line,
                        column: None,
                        problem: format!(
                            "is about the same node as line {first} ({}); expected one line a node",
                            outcome.plan.reference()
                        ),
                    });
                }
                outcomes.push(outcome);
            }
        }
    }
    collisions(known, &taken, &outcomes, &mut problems);
    if problems.is_empty() {
        return Ok(outcomes);
    }
    problems.sort_by_key(|problem| problem.line);
    problems.truncate(PROBLEMS_MAX);
    Err(problems)
}

/// The value under which a column's cell may exist once.
fn unique_value(line: &PlanLine, column: Column) -> Option<String> {
    match column {
        Column::Rack => line.slot().map(|(rack, unit)| format!("{rack} unit {unit}")),
        Column::BmcAddress | Column::SwitchPort => line.get(column).map(|text| text.to_ascii_lowercase()),
        _ => line.get(column),
    }
}

/// Nodes by what they are known by.
struct Index {
    by: HashMap<(Column, String), usize>,
}

impl Index {
    fn new(known: &[Planned]) -> Self {
        let mut by = HashMap::new();
        for (at, node) in known.iter().enumerate() {
            for column in KEYS {
                if let Some(value) = unique_value(&node.line, column) {
                    by.insert((column, value), at);
                }
            }
        }
        // What the plan says comes before what machines said.
        for (at, node) in known.iter().enumerate() {
            for mac in &node.macs {
                by.entry((Column::Mac, mac.clone())).or_insert(at);
            }
            if let Some(serial) = &node.serial {
                by.entry((Column::Serial, serial.clone())).or_insert(at);
            }
        }
        Self { by }
    }
}

fn outcome(
    known: &[Planned],
    index: &Index,
    columns: &[Column],
    line: &ImportLine,
) -> Result<(Option<usize>, LineOutcome), PlanProblem> {
    let find = |column| index.by.get(&(column, unique_value(&line.plan, column)?)).copied();
    let at = KEYS.into_iter().find_map(find);
    let before = at.map(|at| &known[at]);
    let old = before.map_or_else(PlanLine::default, |node| node.line.clone());
    let mut plan = old.clone();
    for column in columns {
        // A node is not made nameless by a file that does not say its name.
        let keeps = matches!(column, Column::Name | Column::Group) && line.plan.get(*column).is_none();
        if !keeps {
            plan.take(*column, &line.plan);
        }
    }
    if plan.unit.is_some() && plan.rack.is_none() {
        return Err(PlanProblem {
            line: line.line,
            column: Some(Column::Unit),
            problem: "a unit without a rack; expected both, or a rack alone".to_owned(),
        });
    }
    if plan.mac.is_none() && plan.serial.is_none() && plan.slot().is_none() {
        return Err(PlanProblem {
            line: line.line,
            column: None,
            problem: "names no machine; expected a mac, a serial, or a rack with a unit".to_owned(),
        });
    }
    let changes: Vec<Change> = Column::ALL
        .into_iter()
        .filter(|column| old.get(*column) != plan.get(*column))
        .map(|column| Change {
            column,
            from: old.get(column),
            to: plan.get(column),
        })
        .collect();
    let action = match before {
        Some(node) if node.is_planned && changes.is_empty() => Action::Unchanged,
        Some(node) if node.is_planned => Action::Changed,
        _ => Action::Added,
    };
    let node = before.map(|node| node.node);
    let line = line.line;
    Ok((
        at,
        LineOutcome {
            line,
            node,
            action,
            changes,
            plan,
        },
    ))
}

/// What would belong to two nodes once all lines are carried out.
fn collisions(
    known: &[Planned],
    taken: &HashMap<usize, usize>,
    outcomes: &[LineOutcome],
    problems: &mut Vec<PlanProblem>,
) {
    let mut owners: HashMap<(Column, String), String> = HashMap::new();
    let own_macs: HashSet<(NodeId, &str)> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome.node?, outcome.plan.mac.as_deref()?)))
        .collect();
    for (at, node) in known.iter().enumerate() {
        let is_in_file = taken.contains_key(&at);
        if !is_in_file {
            let reference = format!("{}, which this file does not have", node.line.reference());
            for column in UNIQUE {
                if let Some(value) = unique_value(&node.line, column) {
                    owners.insert((column, value), reference.clone());
                }
            }
        }
        // A MAC that a machine was seen with is its own, planned or not.
        for mac in &node.macs {
            let goes_with_the_plan = is_in_file && !node.was_seen && node.line.mac.as_ref() == Some(mac);
            if !goes_with_the_plan && !own_macs.contains(&(node.node, mac.as_str())) {
                owners
                    .entry((Column::Mac, mac.clone()))
                    .or_insert_with(|| format!("{}, which was seen with it", node.line.reference()));
            }
        }
    }
    for outcome in outcomes {
        for column in UNIQUE {
            let Some(value) = unique_value(&outcome.plan, column) else {
                continue;
            };
            let owner = format!("{} (line {})", outcome.plan.reference(), outcome.line);
            if let Some(other) = owners.insert((column, value.clone()), owner) {
                let what = match column {
                    Column::Rack => "the place",
                    other => other.as_str(),
                };
                problems.push(PlanProblem {
                    line: outcome.line,
                    column: Some(column),
                    problem: format!("{what} {value} belongs to {other}; expected one that is free"),
                });
            }
        }
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
