// SPDX-License-Identifier: BSD-2-Clause
// Open a trace in speedscope, in headless Chromium, and save what it understood:
//   node speedscope.cjs RELEASE_DIR CHROMIUM TRACE OUT
// Prints one JSON line: errors of the page, and requests that left the machine.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const { chromium } = require('playwright-core');

const [root, program, trace, out] = process.argv.slice(2);
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css',
                '.json': 'application/json', '.wasm': 'application/wasm' };

function serve(request, response) {
  const name = path.basename(new URL(request.url, 'http://x').pathname) || 'index.html';
  const file = name === 'trace.json' ? trace : path.join(root, name);
  fs.readFile(file, (err, data) => {
    response.writeHead(err ? 404 : 200,
                       { 'Content-Type': types[path.extname(name)] || 'text/plain' });
    response.end(err ? '' : data);
  });
}

(async () => {
  const server = http.createServer(serve);
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const home = `http://127.0.0.1:${server.address().port}/`;
  const browser = await chromium.launch({
    executablePath: program, args: ['--no-sandbox', '--disable-gpu'], timeout: 60000 });
  const found = { errors: [], left: [] };
  try {
    const page = await (await browser.newContext({ acceptDownloads: true })).newPage();
    page.on('pageerror', (e) => found.errors.push(String(e)));
    page.on('request', (r) => {
      if (!/^(data|blob):/.test(r.url()) && !r.url().startsWith(home)) found.left.push(r.url());
    });
    await page.goto(`${home}index.html#profileURL=${encodeURIComponent(home + 'trace.json')}`);
    await page.waitForFunction(() => /Left Heavy/.test(document.body.innerText) &&
                               document.querySelector('canvas'), null, { timeout: 60000 });
    const download = page.waitForEvent('download', { timeout: 60000 });
    await page.keyboard.press('Control+s');
    await (await download).saveAs(out);
  } finally {
    await browser.close();
    server.close();
  }
  console.log(JSON.stringify(found));
})().catch((e) => { console.error(String(e)); process.exit(1); });
