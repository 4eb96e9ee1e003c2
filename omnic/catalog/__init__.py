"""What models and their parts are: ports, keys, costs, from headers and configs. How they run: runtime/families."""
