// Writes src/api/schema.gen.ts from docs/openapi.json; with --check fails instead when it is stale, so that no page calls
// what is not there.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const kept = join(web, 'src', 'api', 'schema.gen.ts');
const program = join(web, 'node_modules', '.bin', 'openapi-typescript');
// A field with a default may be left out of a request.
const options = [join(web, '..', 'docs', 'openapi.json'), '--default-non-nullable=false'];
const run = spawnSync(program, options, { encoding: 'utf8', maxBuffer: 64 << 20 });
if (run.status !== 0 || run.stdout === '') {
  console.error(run.stderr || run.error?.message || 'openapi-typescript wrote nothing');
  process.exit(1);
}
if (!process.argv.includes('--check')) {
  writeFileSync(kept, run.stdout);
} else if (run.stdout !== readFileSync(kept, 'utf8')) {
  console.error('src/api/schema.gen.ts is stale: run `npm run generate` and commit the result.');
  process.exit(1);
}
