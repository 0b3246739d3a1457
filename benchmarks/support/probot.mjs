// The peer: a probot app with an empty handler, or one that stores every delivery in SQLite (WAL, FULL) before it answers.
// Run as: node probot.mjs PORT FOLDER empty|sqlite   (modules are found through NODE_PATH's folder, see ingest.py)
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { generateKeyPairSync } from "node:crypto";
import { pathToFileURL } from "node:url";

const [port, folder, kind, modules] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/package.json`));
const { Probot, createNodeMiddleware } = await import(pathToFileURL(require.resolve("probot")));

const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
  publicKeyEncoding: { type: "spki", format: "pem" },
});
const probot = new Probot({ appId: 1, privateKey, secret: "benchmark-benchmark", logLevel: "fatal" });

let store = () => {};
if (kind === "sqlite") {
  const Database = require("better-sqlite3");
  const database = new Database(`${folder}/probot.db`);
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  database.exec("CREATE TABLE IF NOT EXISTS delivery (guid TEXT PRIMARY KEY, event TEXT, body TEXT)");
  const insert = database.prepare("INSERT OR IGNORE INTO delivery VALUES (?, ?, ?)");
  store = (context) => insert.run(context.id, context.name, JSON.stringify(context.payload));
}
const app = (bot) => {
  bot.onAny(async (context) => store(context));
};
const middleware = await createNodeMiddleware(app, { probot, webhooksPath: "/api/github/webhooks" });
createServer(middleware).listen(Number(port), "127.0.0.1", () => console.log("ready"));
