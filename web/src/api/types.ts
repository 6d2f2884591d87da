// Names for what the API sends. Objects that the document leaves open are typed here, as the server writes them.
import type { components } from './schema.gen';

type Schemas = components['schemas'];
export type AuditEvent = Schemas['AuditEvent'];
export type BootEvent = Schemas['BootEvent'];
export type Build = Schemas['BuildRecord'];
export type BurnIn = Schemas['BurnInRecord'];
export type Figure = Schemas['Figure'];
export type TestOrder = Schemas['TestOrder'];
export type Deployment = Schemas['DeploymentRecord'];
export type DiskRule = Schemas['DiskRule'];
export type DiscoveryWindow = Schemas['DiscoveryWindow'];
export type FactDifference = Schemas['FactDifference'];
export type FindingEvent = Schemas['FindingEvent'];
export type FindingGroup = Schemas['FindingGroup'];
export type FindingOnNode = Schemas['FindingOnNode'];
export type FindingVariant = Schemas['FindingVariant'];
export type HeldFinding = Schemas['HeldFinding'];
export type Image = Schemas['ImageRecord'];
export type ImageDiff = Schemas['ImageDiff'];
export type ImageFacts = Schemas['ImageFacts'];
export type Inventory = Schemas['Inventory'];
export type Job = Schemas['JobRecord'];
export type LldpListening = Schemas['LldpListening'];
export type Mismatch = Schemas['Mismatch'];
export type Nic = Schemas['Nic'];
export type NodeDrift = Schemas['NodeDrift'];
export type NodeView = Schemas['NodeView'];
export type NodeWhy = Schemas['NodeWhy'];
export type BootView = Schemas['BootView'];
export type Overview = Schemas['Overview'];
export type PathDifference = Schemas['PathDifference'];
export type Plan = Schemas['PlanView'];
export type PlanLine = Schemas['PlanLine'];
export type Progress = Schemas['Progress'];
export type Recipe = Schemas['RecipeView'];
export type Release = Schemas['ReleaseRecord'];
export type RepairStep = Schemas['RepairStep'];
export type Review = Schemas['ReviewRecord'];
export type Run = Schemas['RunRecord'];
export type RunView = Schemas['RunView'];
export type Sighting = Schemas['Sighting'];
export type Stage = Schemas['Stage'];
export type User = Schemas['User'];
export type VariantDiff = Schemas['VariantDiff'];
export type Verdict = Schemas['Verdict'];

/** Named values of one side of a finding; only what differs is listed. */
export type Attributes = Record<string, string>;

/** Why a place has no value. */
export interface Observation {
  observation: string;
  detail?: string;
}

/** A place that could not be looked at. */
export interface NotLookedAt {
  kind: string;
  key: string;
  observation: Observation;
}

/** What a scan looked at. */
export interface ScanSummary {
  started_unix_ms: number;
  duration_ms: number;
  complete: boolean;
  roots: { mount: string; entries: number; complete: boolean }[];
  facts_by_kind: Record<string, number>;
  hashed_bytes: number;
  not_looked_at_count: number;
  difference_count: number;
}

/** How an image came to be on a disk. */
export interface DiskWork {
  mode: 'in_place' | 'wipe';
  reason: string;
  bytes_fetched: number;
  bytes_kept: number;
  files_kept: number;
  files_written: number;
  files_removed: number;
}

/** How a deployment ended. */
export interface DeploymentOutcome {
  outcome: 'installed' | 'failed';
  files?: number;
  bytes?: number;
  requests?: number;
  duration_secs?: number;
  work?: DiskWork;
  stage?: Stage;
  reason?: string;
}

/** What came of one step of a job. */
export interface StepResult {
  group: string;
  result: 'done' | 'nothing_to_do' | 'refused' | 'failed';
  detail?: string;
  reason?: string;
}

/** What the agent says of a job. */
export interface JobOutcome {
  outcome: 'refused' | 'ran';
  reason?: string;
  steps?: StepResult[];
}

/** What a run was asked for; empty lists: everything. */
export interface Selection {
  nodes: string[];
  node_groups: string[];
  findings: string[];
}
