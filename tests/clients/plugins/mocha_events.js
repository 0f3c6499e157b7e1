// A mocha reporter: writes each test's events to the file in CLIENTS_EVENTS, as they happen.
'use strict'
const fs = require('fs')
const path = require('path')

module.exports = function Events(runner) {
  const root = process.env.CLIENTS_ROOT
  const write = (test, event, text) => {
    const name = `${path.relative(root, test.file || root)}: ${test.fullTitle()}`
    fs.appendFileSync(process.env.CLIENTS_EVENTS, JSON.stringify({ test: name, event, text }) + '\n')
  }
  runner.on('test', (test) => write(test, 'start'))
  runner.on('pass', (test) => write(test, 'pass'))
  runner.on('fail', (test, error) => write(test, 'fail', String((error && error.stack) || error)))
  runner.on('pending', (test) => write(test, 'skip'))
}
