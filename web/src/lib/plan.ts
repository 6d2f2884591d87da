// What a plan would do, gathered: the same step on many nodes is one line.
import type { Plan, RepairStep } from '../api/types';

export interface PlannedStep {
  group: string;
  verb: RepairStep['verb'];
  /** Names of nodes. */
  nodes: string[];
}

/** The widest first. */
export function stepsOf(plan: Plan): PlannedStep[] {
  const steps = new Map<string, PlannedStep>();
  for (const node of plan.nodes) {
    for (const step of node.steps) {
      const key = `${step.group} ${step.verb.verb}`;
      const held = steps.get(key);
      if (held) held.nodes.push(node.node);
      else steps.set(key, { group: step.group, verb: step.verb, nodes: [node.node] });
    }
  }
  return [...steps.values()].sort((a, b) => b.nodes.length - a.nodes.length);
}

export interface PlannedGroup {
  group: string;
  nodes: number;
  atOnce: number;
}

/** Node groups in which something would be done. */
export function groupsOf(plan: Plan): PlannedGroup[] {
  const counts = new Map<string, number>();
  for (const node of plan.nodes) counts.set(node.group, (counts.get(node.group) ?? 0) + 1);
  return [...counts]
    .map(([group, nodes]) => ({ group, nodes, atOnce: plan.at_once[group] ?? 1 }))
    .sort((a, b) => b.nodes - a.nodes);
}
