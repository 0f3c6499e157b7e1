// Requests that are executed once, however often they are sent, for `pg` and Tutti.
//
// Owns: the attempts at one request: their numbers, and which errors another may follow.
// Never: chooses the request's name, or where to connect: the caller does.
// Start reading at `executeOnce`. The protocol is docs/protocol/exactly-once.md.
'use strict';

// Nothing was committed, or it is not known: the next attempt finds out. (Class 08 as well.)
const RETRIED = new Set(['40001', '40P01', '40000', '57P01', '57P02', '57P03', '55006', '53300']);
const SQLSTATE = /^[0-9A-Z]{5}$/;

/** It is not known what became of the request; it may be executed again, from `nextInstance` on. */
class NoAnswer extends Error {
  constructor(name, nextInstance, cause) {
    super(`no answer to request ${name}`, { cause });
    this.nextInstance = nextInstance;
  }
}

function isRetried(error) {
  // Errors of the socket have other codes, or none.
  if (!SQLSTATE.test(error.code ?? '')) return error.code !== undefined || /terminated|ended|closed/i.test(error.message);
  return RETRIED.has(error.code) || error.code.startsWith('08');
}

async function attempt(connect, name, instance, run) {
  const client = await connect();
  // Without a listener a lost connection would end the process; the query that waits for it fails as well.
  client.on('error', () => {});
  try {
    const begun = await client.query('SELECT tutti_begin($1, $2)', [name, instance]);
    const { state, result: kept } = begun.rows[0];
    if (state === 'committed') return kept === null ? null : JSON.parse(kept);
    const result = (await run(client)) ?? null;
    await client.query('SELECT tutti_remember($1)', [JSON.stringify(result)]);
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
 * JSON. It may be called several times, and is committed once. firstInstance: 1, or more than the number of any
 * attempt that somebody has made before.
 */
async function executeOnce(connect, name, run, { firstInstance = 1, patienceMs = 60_000 } = {}) {
  const giveUp = Date.now() + patienceMs;
  let pauseMs = 10;
  for (let instance = firstInstance; ; instance += 1) {
    try {
      return await attempt(connect, name, instance, run);
    } catch (error) {
      if (!isRetried(error)) throw error;
      if (giveUp < Date.now()) throw new NoAnswer(name, instance + 1, error);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())));
    pauseMs = Math.min(2 * pauseMs, 1_000);
  }
}

module.exports = { executeOnce, NoAnswer };
