import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app.jsx";
import { readRoute, setTheme, start, store } from "./store.js";

setTheme(store.get().theme);
readRoute();
addEventListener("hashchange", readRoute);
render(<App />, document.getElementById("app"));
start();
