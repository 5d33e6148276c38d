import { useEffect, useState } from "preact/hooks";

// signalLike is a store with one object in it.
export function signalLike(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(patch) {
      value = { ...value, ...patch };
      for (const f of listeners) f(value);
    },
    use() {
      const [v, set] = useState(value);
      useEffect(() => {
        listeners.add(set);
        set(value);
        return () => listeners.delete(set);
      }, []);
      return v;
    },
  };
}
