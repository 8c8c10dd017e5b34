// The rally without a page: node samples/web/rally/node.js [PORT], or [ws://HOST:PORT] to dial a trainer at page://.
import { Rally } from "./rally.js";
import { connect, listen } from "./ue_rl.js";

const where = process.argv[2] ?? "7777";
const game = new Rally(Number(process.argv[3] ?? 16));
if (where.includes("://")) {
  connect(game, { url: where });
} else {
  const { port } = await listen(game, { port: Number(where) });
  console.log(`${game.numEnvs} courts wait for a trainer on 127.0.0.1:${port}`);
}
