// The page of sleeping_peers.py, in a browser or in Node:
//     node --experimental-websocket sleeping_page.mjs ws://HOST:PORT BLOCKED_SECONDS
import { MultiEnvBridge, connect } from "../samples/web/ue_rl.js";

const [address, seconds] = globalThis.process ? process.argv.slice(2) : [];
const BLOCKED_STEP = 10; // as in sleeping_peers.py

class Count extends MultiEnvBridge {
  count = 0;

  handleResetForEnv() {
    this.count = 0;
  }
  handleResponseActionsForEnv() {
    this.count += 1;
    if (this.count === BLOCKED_STEP && Number(seconds)) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(seconds) * 1000);
    }
  }
  createStateStringForEnv() {
    return [this.count, 0, 0];
  }
  calculateRewardForEnv() {
    return [0, false, false];
  }
}

connect(new Count({ obsSize: 3, actSize: 2, numEnvs: 1 }), { url: address });
