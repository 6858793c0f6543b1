"""The tree engine: many prompts in one forward pass, with the same numbers as in separate passes.

A PRM asks two questions about every step of a solution: for its error labels and then, given these labels, whether it
is correct. As separate prompts, 2n of them repeat the problem and all earlier steps. Here they share one tree
(docs/method.md explains it with a drawing). Read in this order:

1. ``passes`` turns a step into its prompts: one per pass and per combination of labels that the pass is given.
2. ``tree`` merges the prompts of a problem into a trie. Its nodes are tokens in depth-first order, ``end[k]`` is the
   first node after the subtree of k, and the depth of a node is its position id. The engine has one rule: a node sees
   itself and its ancestors:

       q sees k  exactly when  k <= q < end[k]

   So the logits at a node equal the logits at the end of its own prompt (``tests/tree/test_exactness.py``).
3. ``layout`` places trees in a row. A slot's ``order`` is its node's number, which continues from tree to tree, so the
   rule holds for a whole row: ``order[k] <= order[q] < end[k]``. Tokens that continue below node n, in the second pass,
   get orders between n and n + 1. They see n and its ancestors, from the cache of the first pass, but not each other.
   4. ``attention`` applies the rule on a CPU (``BinPlan``) and on a GPU (``FlexPlan``).
5. ``models.decoder`` is the forward pass of the decoders that it declares.
6. ``packing`` chooses the trees that share a pass.

``prm.scoring`` runs the two passes; ``training.examples`` and ``training.objective`` train on the same trees.
"""
