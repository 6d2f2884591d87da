//! The rack plan: which machine is to stand where, and what bringing in a new one changes.
//!
//! Idea: a plan is lines of cells that may each be unknown. [`import`] compares lines with the nodes that are known and
//! says for each line what it adds or changes, or everything that is wrong; the store carries out exactly that.
//!
//! Invariant: after an import no MAC, serial, BMC address, name, switch port or place belongs to two nodes. It is all
//! or nothing: one line that cannot be leaves the plan as it was. Lines that are not in the file stay in the plan.
//!
//! Refused: taking lines away that a file does not have. A file of one rack would empty all others.

mod import;

use serde::{Deserialize, Serialize};

pub use import::{Action, Change, ImportLine, LineOutcome, PlanProblem, Planned, import};

/// Most lines of one import.
pub const LINES_MAX: usize = 10_000;
/// Highest unit of a rack.
pub const UNIT_MAX: i32 = 100;

/// What is planned of one node. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlanLine {
    /// Rack.
    pub rack: Option<String>,
    /// Height unit of its lower edge, from 1 to [`UNIT_MAX`]; only with a rack.
    pub unit: Option<i32>,
    /// Serial number of the machine, as SMBIOS has it.
    pub serial: Option<String>,
    /// MAC of an interface it boots from, lower case with colons.
    pub mac: Option<String>,
    /// Address or host name of its BMC.
    pub bmc_address: Option<String>,
    /// Name, also the hostname.
    pub name: Option<String>,
    /// Node group.
    pub group: Option<String>,
    /// Switch and port it is plugged into, `switch:port` as LLDP names them.
    pub switch_port: Option<String>,
}

/// A column of the plan, in the order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Rack.
    Rack,
    /// Height unit.
    Unit,
    /// Serial number.
    Serial,
    /// MAC.
    Mac,
    /// Address of the BMC.
    BmcAddress,
    /// Name.
    Name,
    /// Node group.
    Group,
    /// Switch and port.
    SwitchPort,
}

impl Column {
    /// All columns, in the order of a file.
    pub const ALL: [Self; 8] = [
        Self::Rack,
        Self::Unit,
        Self::Serial,
        Self::Mac,
        Self::BmcAddress,
        Self::Name,
        Self::Group,
        Self::SwitchPort,
    ];

    /// Its name in a file's first line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rack => "rack",
            Self::Unit => "unit",
            Self::Serial => "serial",
            Self::Mac => "mac",
            Self::BmcAddress => "bmc_address",
            Self::Name => "name",
            Self::Group => "group",
            Self::SwitchPort => "switch_port",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.as_str() == name)
    }
}

impl PlanLine {
    /// The cell of a column, as text.
    #[must_use]
    pub fn get(&self, column: Column) -> Option<String> {
        match column {
            Column::Rack => self.rack.clone(),
            Column::Unit => self.unit.map(|unit| unit.to_string()),
            Column::Serial => self.serial.clone(),
            Column::Mac => self.mac.clone(),
            Column::BmcAddress => self.bmc_address.clone(),
            Column::Name => self.name.clone(),
            Column::Group => self.group.clone(),
            Column::SwitchPort => self.switch_port.clone(),
        }
    }

    /// Takes a column's cell from another line.
    pub fn take(&mut self, column: Column, from: &Self) {
        match column {
            Column::Rack => self.rack.clone_from(&from.rack),
            Column::Unit => self.unit = from.unit,
            Column::Serial => self.serial.clone_from(&from.serial),
            Column::Mac => self.mac.clone_from(&from.mac),
            Column::BmcAddress => self.bmc_address.clone_from(&from.bmc_address),
            Column::Name => self.name.clone_from(&from.name),
            Column::Group => self.group.clone_from(&from.group),
            Column::SwitchPort => self.switch_port.clone_from(&from.switch_port),
        }
    }

    /// Rack and unit, where both are known.
    #[must_use]
    pub fn slot(&self) -> Option<(&str, i32)> {
        Some((self.rack.as_deref()?, self.unit?))
    }

    /// What people call it: its name, else its place, serial or MAC.
    #[must_use]
    pub fn reference(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        if let Some((rack, unit)) = self.slot() {
            return format!("{rack} unit {unit}");
        }
        let other = self.serial.as_ref().map(|serial| format!("serial {serial}"));
        other.or_else(|| self.mac.clone()).unwrap_or_else(|| "?".to_owned())
    }
}
