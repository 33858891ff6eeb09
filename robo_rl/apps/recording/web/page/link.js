// The socket to the server: reconnects by itself, and keeps this page's name over a reload.
const KEY = "robo-rl-page";

function pageName() {
  let name = sessionStorage.getItem(KEY);
  if (!name) {
    name = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(KEY, name);
  }
  return name;
}

export class Link {
  constructor({ onView, onPicture, onRefused, onState }) {
    this.on = { onView, onPicture, onRefused, onState };
    this.wait = 250;
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket?page=${pageName()}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { this.wait = 250; this.on.onState(true); };
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = () => {
      this.on.onState(false);
      setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(2 * this.wait, 3000);
    };
    this.socket = socket;
  }

  receive(data) {
    if (typeof data !== "string") {
      this.on.onPicture(new Uint8Array(data, 0, 1)[0], new Blob([new Uint8Array(data, 1)], { type: "image/jpeg" }));
      return;
    }
    const message = JSON.parse(data);
    if (message.refused) this.on.onRefused(message.refused);
    else this.on.onView(message);
  }

  get connected() { return this.socket.readyState === WebSocket.OPEN; }

  // Returns false when nothing was sent: without a connection, or while old messages wait to leave.
  send(request) {
    if (!this.connected || this.socket.bufferedAmount > 16384) return false;
    this.socket.send(JSON.stringify(request));
    return true;
  }
}
