// Requests that are executed once, however often they are sent, for `pg` and Tutti.
//
// Owns: the attempts at one request: their numbers, and which errors another may follow.
// Never: chooses the request's name, or where to connect: the caller does.
// Start reading at `executeOnce`. The protocol is docs/protocol/exactly-once.md.
'use strict';

// Nothing was committed, or it is not known: the next attempt finds out. (Class 08 as well.)
const RETRIED = new Set(['40001', '40P01', '40000', '57P01', '57P02', '57P03', '55006', '53300', '55P03', '25P03']);
const SQLSTATE = /^[0-9A-Z]{5}$/;

/** It is not known what became of the request: no attempt in time was answered. It may be executed again. */
class NoAnswer extends Error {}

// A number that is larger than that of any attempt before, as far as clocks agree: microseconds.
const numberOfNow = () => BigInt(Date.now()) * 1000n;

function isRetried(error) {
  // Errors of the socket have codes of their own (ECONNRESET), those of `pg` itself have none.
  if (!SQLSTATE.test(error.code ?? '')) {
    return /^E[A-Z]+$/.test(error.code ?? '') || /connection|terminated|not queryable/i.test(error.message);
  }
  return RETRIED.has(error.code) || error.code.startsWith('08');
}

const larger = (one, other) => (one > other ? one : other);

// The largest number that is known of the request's attempts: another process's clock may be ahead.
async function latest(connect, name) {
  let client;
  try {
    client = await connect();
    client.on('error', () => {});
    const known = await client.query('SELECT tutti.tutti_request($1)', [name]);
    return known.rows.map((row) => BigInt(row.instance)).reduce(larger, 0n);
  } catch {
    return 0n;
  } finally {
    await client?.end().catch(() => {});
  }
}

async function attempt(connect, name, instance, run) {
  const client = await connect();
  // Without a listener a lost connection would end the process; the query that waits for it fails as well.
  client.on('error', () => {});
  try {
    const begun = await client.query('SELECT tutti.tutti_begin($1, $2)', [name, instance.toString()]);
    const { state, result: kept } = begun.rows[0];
    if (state === 'committed') return kept === null ? null : JSON.parse(kept);
    const result = (await run(client)) ?? null;
    await client.query('SELECT tutti.tutti_remember($1)', [JSON.stringify(result)]);
    await client.query('COMMIT');
    return result;
  } finally {
    // What it has not committed is over with its connection.
    await client.end().catch(() => {});
  }
}

/**
 * Executes a request once, and returns what its one execution has returned.
 *
 * connect: opens a client of whichever gateway serves, for one attempt. name: the request's; all attempts at it, of
 * this process and others, have the same. run: called with a client in a transaction; what it resolves to must be
 * JSON. It may be called several times, and is committed once. isFirst: nobody can have tried this request before: a
 * question to the cluster is saved.
 */
async function executeOnce(connect, name, run, { isFirst = false, patienceMs = 60_000 } = {}) {
  const giveUp = Date.now() + patienceMs;
  let pauseMs = 10;
  let longestMs = 0;
  for (let instance = isFirst ? 1n : numberOfNow(); ; ) {
    const begun = Date.now();
    try {
      return await attempt(connect, name, instance, run);
    } catch (error) {
      if (!isRetried(error)) throw error;
      if (giveUp < Date.now()) throw new NoAnswer(`no answer to request ${name}`, { cause: error });
    }
    // Another client of the same request ends this attempt, and this one that one's: the longer they have come, the
    // longer one of them is to be left alone.
    longestMs = Math.max(longestMs, Date.now() - begun);
    await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())));
    pauseMs = Math.min(2 * pauseMs, Math.max(1_000, 4 * longestMs));
    instance = [instance + 1n, (await latest(connect, name)) + 1n].reduce(larger, numberOfNow());
  }
}

module.exports = { executeOnce, NoAnswer };
