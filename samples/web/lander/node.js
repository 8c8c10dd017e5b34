// The landers without a page: node samples/web/lander/node.js [PORT], or [ws://HOST:PORT] to dial a trainer at page://.
import { Landers } from "./lander.js";
import { connect, listen } from "./ue_rl.js";

const where = process.argv[2] ?? "7777";
const game = new Landers(Number(process.argv[3] ?? 16));
if (where.includes("://")) {
  connect(game, { url: where });
} else {
  const { port } = await listen(game, { port: Number(where) });
  console.log(`${game.numEnvs} landers wait for a trainer on 127.0.0.1:${port}`);
}
