use super::*;

fn line(number: usize, rack: &str, unit: i32, serial: &str, mac: &str, name: &str) -> ImportLine {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let plan = PlanLine {
        rack: text(rack),
        unit: Some(unit).filter(|unit| *unit > 0),
        serial: text(serial),
        mac: text(mac),
        name: text(name),
        ..PlanLine::default()
    };
    ImportLine { line: number, plan }
}

fn known(line: ImportLine, was_seen: bool) -> Planned {
    Planned {
        node: NodeId::new(),
        is_planned: true,
        macs: line.plan.mac.iter().cloned().collect(),
        serial: line.plan.serial.clone().filter(|_| was_seen),
        was_seen,
        line: line.plan,
    }
}

fn actions(known: &[Planned], lines: &[ImportLine]) -> Vec<Action> {
    let outcomes = import(known, &Column::ALL, lines).unwrap();
    outcomes.iter().map(|outcome| outcome.action).collect()
}

fn problem(known: &[Planned], lines: &[ImportLine]) -> PlanProblem {
    import(known, &Column::ALL, lines).unwrap_err().remove(0)
}

#[test]
fn the_same_file_twice_changes_nothing_the_second_time() {
    let lines = [
        line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1"),
        line(3, "r1", 3, "S2", "", ""),
        line(4, "r1", 5, "", "", ""),
    ];
    assert_eq!(actions(&[], &lines), [Action::Added; 3]);
    let nodes: Vec<Planned> = lines.iter().map(|line| known(line.clone(), false)).collect();
    assert_eq!(actions(&nodes, &lines), [Action::Unchanged; 3]);
}

#[test]
fn a_node_is_found_by_name_then_mac_then_serial_then_place() {
    let nodes = [known(line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1"), true)];
    for (changed, column) in [
        (line(2, "r1", 1, "S9", "52:54:00:aa:00:09", "gpu-1"), Column::Serial),
        (line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-9"), Column::Name),
        (line(2, "r2", 4, "S1", "", ""), Column::Rack),
        (line(2, "r1", 1, "", "52:54:00:aa:00:09", ""), Column::Mac),
    ] {
        let outcome = import(&nodes, &Column::ALL, std::slice::from_ref(&changed))
            .unwrap()
            .remove(0);
        assert_eq!(
            (outcome.node, outcome.action),
            (Some(nodes[0].node), Action::Changed),
            "{changed:?}"
        );
        assert!(
            outcome.changes.iter().any(|change| change.column == column),
            "{outcome:?}"
        );
        assert!(outcome.plan.name.is_some(), "a node is not made nameless");
    }
}

#[test]
fn two_nodes_may_exchange_their_macs_in_one_file_but_not_share_one() {
    let nodes = [
        known(line(2, "r1", 1, "", "52:54:00:aa:00:01", "gpu-1"), false),
        known(line(3, "r1", 2, "", "52:54:00:aa:00:02", "gpu-2"), false),
    ];
    let exchanged = [
        line(2, "r1", 1, "", "52:54:00:aa:00:02", "gpu-1"),
        line(3, "r1", 2, "", "52:54:00:aa:00:01", "gpu-2"),
    ];
    assert_eq!(actions(&nodes, &exchanged), [Action::Changed; 2]);
    let shared = problem(&nodes, &exchanged[..1]);
    assert_eq!((shared.line, shared.column), (2, Some(Column::Mac)));
    assert!(shared.problem.contains("gpu-2"), "{shared:?}");
}

#[test]
fn what_two_nodes_cannot_have_is_refused_with_line_and_column() {
    let first = line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1");
    for (second, column, words) in [
        (
            line(3, "r1", 2, "S2", "52:54:00:aa:00:01", "gpu-2"),
            Column::Mac,
            "line 2",
        ),
        (line(3, "r1", 2, "S1", "", "gpu-2"), Column::Serial, "gpu-1"),
        (line(3, "r1", 1, "S2", "", "gpu-2"), Column::Rack, "place r1 unit 1"),
        (line(3, "r1", 2, "S2", "", "gpu-1"), Column::Name, "gpu-1"),
    ] {
        let problem = problem(&[], &[first.clone(), second]);
        assert_eq!((problem.line, problem.column), (3, Some(column)), "{problem:?}");
        assert!(problem.problem.contains(words), "{problem:?}");
    }
    let twice = problem(
        &[known(first.clone(), false)],
        &[first.clone(), line(3, "r9", 1, "", "", "gpu-1")],
    );
    assert!(twice.problem.contains("same node as line 2"), "{twice:?}");
    let nothing = problem(&[], &[line(2, "r1", 0, "", "", "gpu-1")]);
    assert!(nothing.problem.contains("names no machine"), "{nothing:?}");
}

#[test]
fn a_mac_that_another_machine_was_seen_with_is_not_given_away() {
    let mut seen = known(line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1"), true);
    seen.macs.push("52:54:00:aa:00:02".to_owned());
    let nodes = [seen];
    let other = line(3, "r1", 2, "S2", "52:54:00:aa:00:02", "gpu-2");
    // The MAC finds the node: the name and the rest would become another machine's.
    let outcome = import(&nodes, &Column::ALL, std::slice::from_ref(&other))
        .unwrap()
        .remove(0);
    assert_eq!(outcome.node, Some(nodes[0].node), "its MAC says who it is");
    let both = problem(&nodes, &[line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1"), other]);
    assert_eq!((both.line, both.column), (3, None), "{both:?}");
}

#[test]
fn a_column_that_the_file_lacks_stays_and_an_empty_cell_is_not_known_any_more() {
    let nodes = [known(line(2, "r1", 1, "S1", "52:54:00:aa:00:01", "gpu-1"), false)];
    let short = line(2, "", 0, "", "52:54:00:aa:00:01", "");
    let columns = [Column::Mac, Column::Serial];
    let outcome = import(&nodes, &columns, std::slice::from_ref(&short))
        .unwrap()
        .remove(0);
    assert_eq!(outcome.plan.slot(), Some(("r1", 1)));
    assert_eq!(outcome.plan.serial, None);
}
