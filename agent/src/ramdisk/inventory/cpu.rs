//! Processors.

use std::collections::BTreeSet;

use protocol::latest::Cpu;

/// Reads the text of `/proc/cpuinfo`.
///
/// Virtual machines and some firmware leave out `physical id` and `core id`: then all processors are one package, and
/// each is a core of its own.
pub fn parse(text: &str) -> Cpu {
    let mut cpu = Cpu::default();
    let mut packages = BTreeSet::new();
    let mut cores = BTreeSet::new();
    for block in text.split("\n\n") {
        let field = |name: &str| {
            block.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let Some(processor) = field("processor").and_then(|text| text.parse::<u32>().ok()) else {
            continue;
        };
        cpu.threads += 1;
        if cpu.model.is_none() {
            cpu.model = field("model name").filter(|model| !model.is_empty()).map(str::to_owned);
        }
        let package: u32 = field("physical id").and_then(|text| text.parse().ok()).unwrap_or(0);
        let core = field("core id").and_then(|text| text.parse::<u32>().ok());
        packages.insert(package);
        cores.insert((package, core.map_or((1, processor), |core| (0, core))));
    }
    cpu.sockets = u32::try_from(packages.len()).unwrap_or(u32::MAX);
    cpu.cores = u32::try_from(cores.len()).unwrap_or(u32::MAX);
    cpu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_are_one_core() {
        let mut text = String::new();
        for (processor, (package, core)) in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)]
            .iter()
            .enumerate()
        {
            text.push_str(&format!(
                "processor\t: {processor}\nmodel name\t: AMD EPYC 9654 96-Core Processor\nphysical id\t: {package}\ncore id\t\t: {core}\n\n"
            ));
        }
        let cpu = parse(&text);
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (2, 4, 8));
        assert_eq!(cpu.model.as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
    }

    #[test]
    fn firmware_that_says_nothing_of_packages_is_one_package() {
        let cpu = parse("processor\t: 0\nmodel name\t:\n\nprocessor\t: 1\n\n");
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads, cpu.model), (1, 2, 2, None));
        assert_eq!(parse(""), Cpu::default());
    }
}
