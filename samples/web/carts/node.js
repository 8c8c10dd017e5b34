// The carts without a page: node samples/web/carts/node.js [PORT], or [ws://HOST:PORT] to dial a trainer at page://.
import { Carts } from "./carts.js";
import { connect, listen } from "./ue_rl.js";

const where = process.argv[2] ?? "7777";
const game = new Carts(Number(process.argv[3] ?? 16));
if (where.includes("://")) {
  connect(game, { url: where });
} else {
  const { port } = await listen(game, { port: Number(where) });
  console.log(`${game.numEnvs} carts wait for a trainer on 127.0.0.1:${port}`);
}
