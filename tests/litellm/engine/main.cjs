#!/usr/bin/env node
// Stands in for Prisma's query engine binary, which LiteLLM's Python client starts and which cannot be had from npm.
// The real engine runs here, compiled to WebAssembly, with the PostgreSQL driver of Node beneath it; this file speaks
// the binary's command line and HTTP interface. What differs between the two is in graphql.cjs.
'use strict';

const VERSION = '393aa359c9ad4a4bb28630fb5613f9c281cde053'; // of @prisma/client 5.17.0
if (process.argv.includes('--version')) {
  console.log(`query-engine ${VERSION}`);
  process.exit(0);
}

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { bindAdapter } = require('@prisma/driver-adapter-utils');
const { PrismaPg } = require('@prisma/adapter-pg');
const { Pool } = require('pg');
const { toJsonQueries, toGraphqlAnswer } = require('./graphql.cjs');

const RUNTIME = '@prisma/client/runtime/query_engine_bg.postgresql.js';
const TRACE = '{"traceparent":"00-00-00-00"}';
const TRANSACTION = { max_wait: 2000, timeout: 5000 }; // ms, when the client does not say

/** The engine class, backed by the WebAssembly module that lies beside its glue code. */
function loadEngine() {
  const glue = require(RUNTIME);
  const file = path.join(path.dirname(require.resolve(RUNTIME)), 'query_engine_bg.postgresql.wasm');
  const module = new WebAssembly.Module(fs.readFileSync(file));
  glue.__wbg_set_wasm(new WebAssembly.Instance(module, { './query_engine_bg.js': glue }).exports);
  return glue.QueryEngine;
}

/** The schema as the WebAssembly engine wants it: its generator must ask for driver adapters. */
function readSchema(file) {
  const generator = 'generator client {\n  provider = "prisma-client-js"\n  previewFeatures = ["driverAdapters"]\n}';
  return fs.readFileSync(file, 'utf8').replace(/generator\s+\w+\s*\{[^}]*\}/, generator);
}

/** A connection pool for the URL that the client was given, without the parameters that only Prisma knows. */
function connect() {
  const overrides = JSON.parse(process.env.OVERWRITE_DATASOURCES || '[]');
  const url = new URL(overrides[0]?.url || process.env.DATABASE_URL);
  const schema = url.searchParams.get('schema') || 'public';
  const max = Number(url.searchParams.get('connection_limit')) || 10;
  url.search = '';
  const pool = new Pool({ connectionString: url.toString(), max });
  pool.on('error', () => {}); // a connection that dies idle is replaced
  return bindAdapter(new PrismaPg(pool, { schema }));
}

const schema = readSchema(process.env.PRISMA_DML_PATH);
const engine = new (loadEngine())(
  {
    datamodel: schema,
    logLevel: 'error',
    logQueries: false,
    engineProtocol: 'json',
    configDir: '.',
    ignoreEnvVarErrors: true,
    datasourceOverrides: {},
    env: {},
  },
  () => {},
  connect(),
);

const ask = async (query, transaction) => JSON.parse(await engine.query(JSON.stringify(query), TRACE, transaction));

/** One POST of the client: a query, or a batch of them. */
async function query(body, transaction) {
  const request = JSON.parse(body);
  if (request.batch) {
    const queries = request.batch.map((one) => toJsonQueries(one.query, schema)[0]);
    const batch = { batch: queries.map((one) => one.query), transaction: request.transaction ? {} : undefined };
    const answer = await ask(batch, transaction);
    if (!answer.batchResult) return answer;
    return { batchResult: answer.batchResult.map((one, index) => toGraphqlAnswer(one, queries[index].alias)) };
  }
  const data = {};
  for (const one of toJsonQueries(request.query, schema)) {
    const answer = toGraphqlAnswer(await ask(one.query, transaction), one.alias);
    if (answer.errors) return answer;
    Object.assign(data, answer.data);
  }
  return { data };
}

async function transact(step, id, body) {
  if (step === 'start') return engine.startTransaction(JSON.stringify({ ...TRANSACTION, ...JSON.parse(body) }), TRACE);
  return step === 'commit' ? engine.commitTransaction(id, TRACE) : engine.rollbackTransaction(id, TRACE);
}

async function answer(request, body) {
  if (request.method === 'GET') return request.url.startsWith('/metrics') ? { counters: [], gauges: [], histograms: [] } : { status: 'ok' };
  const [, first, second, third] = request.url.split('?')[0].split('/');
  if (first !== 'transaction') return query(body, request.headers['x-transaction-id']);
  const step = third || second;
  const said = JSON.parse((await transact(step, second, body)) || '{}');
  return said.error_code ? { errors: [{ error: said.message, user_facing_error: said }] } : said;
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', async () => {
    let status = 200;
    let said;
    try {
      said = await answer(request, Buffer.concat(chunks).toString());
    } catch (error) {
      status = 500;
      said = { errors: [{ error: String(error?.stack || error), user_facing_error: { message: String(error), is_panic: false } }] };
      console.error(`engine stand-in: ${error?.stack || error}`); // the tests look for this in LiteLLM's log
    }
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(said));
  });
});

const end = () => process.exit(0);
process.on('SIGINT', end);
process.on('SIGTERM', end);
const parent = process.ppid;
setInterval(() => process.ppid === parent || end(), 500).unref(); // the client may die without a word

const port = Number(process.argv[process.argv.indexOf('-p') + 1]);
engine.connect(TRACE).then(
  () => server.listen(port, 'localhost'),
  (error) => {
    console.error(`engine stand-in: no database: ${error}`);
    process.exit(1);
  },
);
